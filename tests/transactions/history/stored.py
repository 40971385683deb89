"""Transactions as they lie in the files of a stopped broker, read with aiokafka's decoder."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable

from aiokafka.record.memory_records import MemoryRecords

from tests.support.raw_batches import CONTROL, TRANSACTIONAL, StoredBatch
from tests.transactions.history.events import Stored

_KEY = struct.Struct(">hh")
_COMMIT = 1


def read_stored(batches: Iterable[StoredBatch]) -> list[Stored]:
    """The records of a partition in order, each with the marker that ended its transaction; others are committed."""
    found: list[Stored] = []
    open_rows = defaultdict[int, list[int]](list)
    for batch in batches:
        producer_id = struct.unpack_from(">q", batch.data, 43)[0]
        for record in MemoryRecords(batch.data).next_batch():
            if batch.attributes & CONTROL:
                is_commit = _KEY.unpack_from(record.key)[1] == _COMMIT
                for index in open_rows.pop(producer_id, ()):
                    found[index] = found[index]._replace(is_committed=is_commit)
                continue
            if is_open := bool(batch.attributes & TRANSACTIONAL):
                open_rows[producer_id].append(len(found))
            state = None if is_open else True
            found.append(Stored(record.offset, record.value.decode(), state))
    return found
