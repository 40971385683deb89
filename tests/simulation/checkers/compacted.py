"""The promises of a compacted partition: C1 (what cleaning leaves is the table), C2 (decisions as without it), C3.

All is compared with the log as it was before any cleaning: it holds everything acknowledged once and in order, as any
other partition does. A replica may lack a record of it only if a later one has its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from echoless.protocol.records import iterate_records
from tests.simulation.checkers.logs import Batch, ReplicaLog, read_batches
from tests.simulation.observations import Poll

Table = Mapping[bytes, bytes]
"""The value of each key that has not been deleted."""


class Row(NamedTuple):
    """One record."""

    key: bytes | None
    value: bytes | None


def rows_of(batches: Iterable[Batch]) -> dict[int, Row]:
    """Records by offset, in their order."""
    return {
        record.offset: Row(record.key, record.value)
        for batch in batches
        for record in iterate_records(memoryview(batch.data))
    }


def table_of(rows: Mapping[int, Row]) -> Table:
    """The table that the records make, one after the other."""
    table: dict[bytes, bytes] = {}
    for row in rows.values():
        assert row.key is not None
        if row.value is None:
            table.pop(row.key, None)
        else:
            table[row.key] = row.value
    return table


def cleaned_away(original: ReplicaLog, log: ReplicaLog) -> int:
    """Counts the records that a replica has no more."""
    return len(rows_of(original.batches)) - len(rows_of(log.batches))


def faults_of_log(name: str, original: ReplicaLog, log: ReplicaLog) -> Iterator[str]:
    """C1 and C3 of one replica."""
    whole, left = rows_of(original.batches), rows_of(log.batches)
    newest = {row.key: offset for offset, row in whole.items()}
    for offset, row in left.items():
        if whole.get(offset) != row:
            yield f"{name}: {log.node} has {row} at offset {offset}, {whole.get(offset)} was appended"
    for offset, row in whole.items():
        if offset not in left and newest[row.key] == offset:
            yield f"{name}: {log.node} lost {row} at offset {offset}, the newest of its key"
    for before, after in zip(log.batches, log.batches[1:], strict=False):
        if before.next_offset > after.base_offset or before.leader_epoch > after.leader_epoch:
            yield f"{name}: at {log.node} offset {after.base_offset} comes after {before.base_offset}"
    if log.end != original.end:
        yield f"{name}: {log.node} ends at {log.end}, not at {original.end}"


def faults_of_polls(name: str, original: ReplicaLog, polls: Sequence[Poll]) -> Iterator[str]:
    """C1 of consumers that read from the beginning: records that were appended, forwards, and the table in the end."""
    whole = rows_of(original.batches)
    for consumer in dict.fromkeys(poll.consumer for poll in polls):
        rows: dict[int, Row] = {}
        position = 0
        for poll in polls:
            if poll.consumer != consumer:
                continue
            for offset, row in rows_of(read_batches(poll.data)).items():
                if offset < position:
                    continue  # the beginning of a batch that it has read
                if whole.get(offset) != row:
                    yield f"{name}: {consumer} read {row} at {offset}, not {whole.get(offset)}"
                rows[offset] = row
                position = offset + 1
        if table_of(rows) != table_of(whole):
            yield f"{name}: {consumer} has another table than the log"
