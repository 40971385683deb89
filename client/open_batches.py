"""The batches in which records are collected, one per partition. No I/O.

A batch ends where its records and the settings say: when it has `batch_records_max` records, when
the next record would take it above `batch_bytes_max`, or when the producer's user asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from echoless.client.batch import RECORD_BYTES, DeliveryFuture, RecordFields, record_size
from echoless.client.settings import Settings

OutcomeT = TypeVar("OutcomeT", bound=DeliveryFuture)


@dataclass(slots=True, eq=False)
class OpenBatch(Generic[OutcomeT]):
    """Records that are sent together."""

    topic: str
    partition: int
    outcome: OutcomeT
    records: list[RecordFields] = field(default_factory=list)
    size: int = 0
    """An upper bound of the bytes of its records, uncompressed."""
    is_cut: bool = False
    """Set if it takes no more records. A `submit` that may be interrupted sets it together with taking the batch."""


class OpenBatches(Generic[OutcomeT]):
    """Calls `submit` with every batch that is cut, in the order of the cuts.

    If `submit` raises before it takes the batch (an interrupt while it waits, a closed producer), the
    batch stays open for the next cut.
    """

    def __init__(
        self,
        settings: Settings,
        new_outcome: Callable[[], OutcomeT],
        submit: Callable[[OpenBatch[OutcomeT]], None],
    ) -> None:
        self._records_max = settings.batch_records_max
        self._bytes_max = settings.batch_bytes_max
        self._new_outcome = new_outcome
        self._submit = submit
        self._by_partition: dict[tuple[str, int], OpenBatch[OutcomeT]] = {}

    def add(
        self, topic: str, partition: int, record: RecordFields
    ) -> tuple[OpenBatch[OutcomeT], int]:
        """The batch that the record went into, and its index there.

        If `submit` raises without taking the batch, the record is not in it.
        """
        _, _, key, value, headers = record
        if headers:
            size = record_size(record)
        else:  # the same, without a call for each record
            size = RECORD_BYTES + len(key or b"") + len(value or b"")
        batch = self._by_partition.get((topic, partition))
        if batch is not None and batch.size + size > self._bytes_max:
            self.cut(batch)
            batch = None
        if batch is None:
            batch = OpenBatch(topic, partition, self._new_outcome())
            self._by_partition[topic, partition] = batch
        records = batch.records
        records.append(record)  # the first call after a new batch: an interrupt leaves none empty
        batch.size += size
        count = len(records)
        if count >= self._records_max:
            try:
                self.cut(batch)
            except BaseException:
                self._take_back(batch, size)
                raise
        return batch, count - 1

    def cut(self, batch: OpenBatch[OutcomeT]) -> None:
        """Ends the batch, unless it has ended already."""
        if not batch.is_cut:
            try:
                self._submit(batch)
                batch.is_cut = True
            finally:
                if batch.is_cut:
                    del self._by_partition[batch.topic, batch.partition]

    def cut_partition(self, topic: str, partition: int) -> None:
        batch = self._by_partition.get((topic, partition))
        if batch is not None:
            self.cut(batch)

    def cut_all(self) -> None:
        """Ends all open batches, in the order in which they were begun."""
        for batch in list(self._by_partition.values()):
            self.cut(batch)

    def drop(self) -> list[OpenBatch[OutcomeT]]:
        """Ends all open batches without sending them, and returns them."""
        dropped = list(self._by_partition.values())
        self._by_partition.clear()
        for batch in dropped:
            batch.is_cut = True
        return dropped

    def _take_back(self, batch: OpenBatch[OutcomeT], size: int) -> None:
        """Removes the last record of a batch that is still open: its caller will send it again."""
        if batch.is_cut:
            return
        batch.records.pop()
        batch.size -= size
        if not batch.records:
            del self._by_partition[batch.topic, batch.partition]
