"""Produce requests being assembled: small batches of several partitions share one. No I/O.

A batch goes into the first request after the last one that has a batch of its partition: no request
has two for one partition, since a broker would store only one of them, and each partition's order
is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from echoless.client.produce_request import NO_TRANSACTION, PartitionBatch, ProduceTerms
from echoless.client.receivers import RowReceiver
from echoless.protocol.errors import DecodeError
from echoless.protocol.produce_response import ProducedRow


class ProduceGroup:
    """One request: a `Receiver` that hands each partition its row of the answer."""

    def __init__(
        self, *, timeout_ms: int, bytes_max: int, terms: ProduceTerms = NO_TRANSACTION
    ) -> None:
        self.timeout_ms = timeout_ms
        self.terms = terms
        self.batches: list[PartitionBatch] = []
        self.size = 0
        self._bytes_max = bytes_max
        self._receivers: dict[tuple[str, int], RowReceiver] = {}

    @property
    def is_alone(self) -> bool:
        """Whether it takes only one batch."""
        return self._bytes_max == 0

    def has(self, batch: PartitionBatch) -> bool:
        """Whether it has a batch for the same partition."""
        return (batch.topic, batch.partition) in self._receivers

    def has_room(self, batch: PartitionBatch) -> bool:
        return self.size + len(batch.data) <= self._bytes_max

    def add(self, batch: PartitionBatch, receiver: RowReceiver) -> None:
        self.batches.append(batch)
        self.size += len(batch.data)
        self._receivers[batch.topic, batch.partition] = receiver

    def take(self, rows: Sequence[ProducedRow]) -> None:
        """Raises `DecodeError`."""
        receivers = self._receivers
        by_partition = {(row.topic, row.partition): row for row in rows}
        if by_partition.keys() != receivers.keys():
            raise DecodeError("the answer to produce is about other partitions")
        for key, receiver in receivers.items():
            receiver.take(by_partition[key])

    def fail(self, error: Exception) -> None:
        for receiver in self._receivers.values():
            receiver.fail(error)


class ProduceQueue:
    """The requests that have not been sent, in order."""

    def __init__(self) -> None:
        self._groups: deque[ProduceGroup] = deque()
        self._size = 0
        self._alone_count = 0

    def add(
        self,
        batch: PartitionBatch,
        receiver: RowReceiver,
        *,
        timeout_ms: int,
        bytes_max: int,
        terms: ProduceTerms = NO_TRANSACTION,
    ) -> None:
        """Adds a batch. `bytes_max` limits the request that it may share; 0: it shares none."""
        group = self._room_for(batch) if bytes_max else None
        if group is None:
            group = ProduceGroup(timeout_ms=timeout_ms, bytes_max=bytes_max, terms=terms)
            self._groups.append(group)
            self._alone_count += group.is_alone
        group.add(batch, receiver)
        self._size += len(batch.data)

    def _room_for(self, batch: PartitionBatch) -> ProduceGroup | None:
        found = None
        for group in reversed(self._groups):
            if group.has(batch):
                break
            if group.has_room(batch):
                found = group
        return found

    def pop(self, *, may_wait: bool, waiting_bytes_max: int) -> ProduceGroup | None:
        """The next request to send, if any; `may_wait`: for more batches that it could take."""
        if not self._groups:
            return None
        if may_wait and not self._alone_count and self._size < waiting_bytes_max:
            return None
        group = self._groups.popleft()
        self._size -= group.size
        self._alone_count -= group.is_alone
        return group

    def fail(self, error: Exception) -> None:
        while self._groups:
            self._groups.popleft().fail(error)
        self._size = self._alone_count = 0
