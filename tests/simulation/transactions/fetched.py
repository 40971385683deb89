"""The rule by which a consumer takes committed records out of a fetch response (KIP-98). Pure.

Before a batch, producers of aborted transactions that begin at or below its last offset are noted; the abort marker of a
producer takes it off again. A transactional batch of a producer that is noted is dropped, and so is every control batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from echoless.protocol.records import iterate_records
from tests.support.raw_batches import CONTROL, TRANSACTIONAL, StoredBatch
from tests.support.raw_client import next_offset

_PRODUCER_ID: Final = struct.Struct(">q")
_PRODUCER_ID_AT: Final = 43
_MARKER_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0


class Taken(NamedTuple):
    """The records of a response that count."""

    records: list[tuple[int, str]]
    """Offsets and values."""
    next_offset: int
    noted: frozenset[int]
    """Producers of aborted transactions whose markers did not come with it."""


def take(
    batches: Iterable[StoredBatch], position: int, aborted: Iterable[tuple[int, int]] | None
) -> Taken:
    """Takes the records from `position` on; `aborted`: producer ids and first offsets, None for readers of all records."""
    waiting = sorted(aborted or (), key=lambda row: row[1], reverse=True)
    noted: set[int] = set()
    found: list[tuple[int, str]] = []
    for batch in batches:
        (producer_id,) = _PRODUCER_ID.unpack_from(batch.data, _PRODUCER_ID_AT)
        end = next_offset(batch)
        while waiting and waiting[-1][1] < end:
            noted.add(waiting.pop()[0])
        if batch.attributes & CONTROL:
            if is_abort(batch):
                noted.discard(producer_id)
        elif not (batch.attributes & TRANSACTIONAL and producer_id in noted):
            found += values_of(batch, position)
        position = max(position, end)
    return Taken(found, position, frozenset(noted))


def values_of(batch: StoredBatch, position: int = 0) -> list[tuple[int, str]]:
    """Offsets and values of the records from `position` on."""
    return [
        (record.offset, (record.value or b"").decode())
        for record in iterate_records(memoryview(batch.data))
        if record.offset >= position
    ]


def is_abort(batch: StoredBatch) -> bool:
    """Whether a control batch is the marker of an abort."""
    (marker,) = iterate_records(memoryview(batch.data))
    assert marker.key is not None
    kind: int = _MARKER_KEY.unpack_from(marker.key)[1]
    return kind == _ABORT
