"""Produce requests being assembled: small batches of several partitions share one. No I/O.

A batch goes into the first request after the last one that has a batch of its partition: no request
has two for one partition, since a broker would store only one of them, and each partition's order
is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from client.produce_request import PartitionBatch
from client.receivers import fail_future
from protocol.errors import DecodeError


class ProduceGroup:
    """One request: a `Receiver` that hands each partition its row of the answer."""

    def __init__(self, *, timeout_ms: int, bytes_max: int) -> None:
        self.timeout_ms = timeout_ms
        self.batches: list[PartitionBatch] = []
        self.size = 0
        self._bytes_max = bytes_max
        self._futures: dict[tuple[str, int], asyncio.Future[Any]] = {}

    @property
    def is_alone(self) -> bool:
        """Whether it takes only one batch."""
        return self._bytes_max == 0

    def has(self, batch: PartitionBatch) -> bool:
        """Whether it has a batch for the same partition."""
        return (batch.topic, batch.partition) in self._futures

    def has_room(self, batch: PartitionBatch) -> bool:
        return self.size + len(batch.data) <= self._bytes_max

    def add(self, batch: PartitionBatch, future: asyncio.Future[Any]) -> None:
        self.batches.append(batch)
        self.size += len(batch.data)
        self._futures[batch.topic, batch.partition] = future

    def take(self, answer: Any) -> None:
        """Raises `DecodeError`."""
        rows = {
            (topic.name, row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        if rows.keys() != self._futures.keys():
            raise DecodeError("the answer to produce is about other partitions")
        for key, future in self._futures.items():
            if not future.done():
                future.set_result(rows[key])

    def fail(self, error: Exception) -> None:
        for future in self._futures.values():
            fail_future(future, error)


class ProduceQueue:
    """The requests that have not been sent, in order."""

    def __init__(self) -> None:
        self._groups: deque[ProduceGroup] = deque()
        self._size = 0
        self._alone_count = 0

    def add(
        self,
        batch: PartitionBatch,
        future: asyncio.Future[Any],
        *,
        timeout_ms: int,
        bytes_max: int,
    ) -> None:
        """Adds a batch. `bytes_max` limits the request that it may share; 0: it shares none."""
        group = self._room_for(batch) if bytes_max else None
        if group is None:
            group = ProduceGroup(timeout_ms=timeout_ms, bytes_max=bytes_max)
            self._groups.append(group)
            self._alone_count += group.is_alone
        group.add(batch, future)
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
