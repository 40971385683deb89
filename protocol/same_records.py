"""Whether two batches hold the same records, however they are encoded.

A producer may send a batch again with other bytes: compressed anew, or, a program that continues where another run
ended, with the times of this run. It is a repeat if keys, values and headers are the same. Called for a batch whose
sequences are stored already, in a thread.
"""

from __future__ import annotations

from itertools import zip_longest

from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import Buffer
from echoless.protocol.records import iterate_records


def have_same_records(one: Buffer, other: Buffer) -> bool:
    """Compares keys, values and headers, not times; what cannot be read is not the same."""
    try:
        return all(
            mine is not None and its is not None and mine[2:] == its[2:]
            for mine, its in zip_longest(iterate_records(one), iterate_records(other))
        )
    except DecodeError:
        return False
