"""`replica_fetch`: a follower's long poll for batches of the partitions that it follows here.

Answers at once when `min_bytes` are available, when a partition has an error or a divergence, or when
`max_wait_ms` is 0; otherwise waits for appends, at most that long. Reading a partition also tells it
how far the follower has come, so every partition is read, even if no bytes are left to send.

`bytes_max` goes to the partitions in turn: a fetch begins with the first one that came up short in the
previous fetch, so that a busy partition never starves the others. The answer keeps the order of the
message.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.network.request import Peer
from broker.network.turns import ROWS_PER_TURN, in_thread, work_in_turns
from broker.partitions.long_poll import LongPoll
from broker.partitions.partition import Partition
from broker.replication.leader import fetch_as_replica
from protocol.errors import ErrorCode, KafkaError
from protocol.native.replication import (
    ReplicaFetch,
    ReplicaFetched,
    ReplicaWanted,
    to_replica_fetch_answer,
)
from storage.file_system import StorageError

if TYPE_CHECKING:
    from broker.services import Services

BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of batches in one answer, whatever the follower asks for; the same as for consumers."""

_Turn = tuple[uuid.UUID, int]


@dataclass(slots=True)
class _Read:
    """One pass over the partitions of the message."""

    fetched: list[ReplicaFetched]
    left: int
    """Bytes of batches that may still be read."""
    size: int = 0
    """Bytes of batches read."""
    has_news: bool = False
    """Whether there is an error or a divergence that the follower should learn of at once."""
    partitions: list[Partition] = field(default_factory=list)
    """The partitions whose next append may complete the answer."""
    short: _Turn | None = None
    """The first partition for whose batches there was no room."""

    @classmethod
    def of(cls, message: ReplicaFetch) -> _Read:
        """A pass that has not begun."""
        count, left = len(message.partitions), min(message.bytes_max, BYTES_MAX)
        return cls([ReplicaFetched(ErrorCode.NONE)] * count, left)


class ReplicaFetches:
    """Answers the fetches of all followers."""

    def __init__(self) -> None:
        self._turns: dict[int, _Turn] = {}
        """Broker id of a follower -> the partition to read first in its next fetch."""

    def handle(
        self, message: ReplicaFetch, _peer: Peer, services: Services
    ) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """The available batches, at once or after a wait."""
        if len(message.partitions) > ROWS_PER_TURN:
            return self._answer_in_turns(services, message)
        read = self._read(services, message)
        if _is_enough(message, read) or message.max_wait_ms == 0 or services.stopping.is_set():
            return to_replica_fetch_answer(read.fetched)
        wait = LongPoll()
        _watch(read.partitions, wait)  # in this step: no append can come before
        return self._wait_for_appends(services, message, wait, read.partitions)

    async def _wait_for_appends(
        self,
        services: Services,
        message: ReplicaFetch,
        wait: LongPoll,
        watched: Sequence[Partition],
    ) -> dict[str, Any]:
        wait.end_after(message.max_wait_ms / 1000)
        try:
            while True:
                await wait.arrived
                _forget(watched, wait)
                read = self._read(services, message)
                if _is_enough(message, read) or wait.is_over or services.stopping.is_set():
                    return to_replica_fetch_answer(read.fetched)
                wait.renew()
                watched = read.partitions
                _watch(watched, wait)
                del read  # holds batches: a wait must not keep them in memory
        finally:
            _forget(watched, wait)
            wait.cancel()

    async def _answer_in_turns(self, services: Services, message: ReplicaFetch) -> dict[str, Any]:
        """Answers for thousands of partitions, with other requests in between.

        Appends may come between the turns, so a pass that ends in a wait is watched from its beginning: by
        the waiters of the partitions that the pass before it has found.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + message.max_wait_ms / 1000
        watched: Sequence[Partition] = ()
        while True:
            with _next_append(watched) as arrived:
                read = _Read.of(message)
                await work_in_turns(self._steps(services, message, read))
                timeout_s = deadline - loop.time()
                if _is_enough(message, read) or timeout_s <= 0 or services.stopping.is_set():
                    return await in_thread(partial(to_replica_fetch_answer, read.fetched))
                was_watched, watched = bool(watched), read.partitions
                del read  # holds batches: a wait must not keep them in memory
                if was_watched:
                    await asyncio.wait((arrived,), timeout=timeout_s)

    def _read(self, services: Services, message: ReplicaFetch) -> _Read:
        read = _Read.of(message)
        for _ in self._steps(services, message, read):
            pass
        return read

    def _steps(self, services: Services, message: ReplicaFetch, read: _Read) -> Iterator[None]:
        """Makes the pass, a partition a step."""
        for index in self._order(message):
            wanted = message.partitions[index]
            one, partition = _read_partition(services, message, wanted, read.left)
            if len(one.batches) > read.left and read.size:  # only the first batch may exceed it
                one, read.left = one._replace(batches=b""), 0
            read.size += len(one.batches)
            read.left = max(read.left - len(one.batches), 0)
            read.fetched[index] = one
            read.has_news |= _is_news(one)
            if partition is not None:
                read.partitions.append(partition)
                if read.short is None and not one.batches and _has_batches(partition, wanted, one):
                    read.short = _turn(wanted)
            yield
        if read.short is not None:
            self._turns[message.broker_id] = read.short

    def _order(self, message: ReplicaFetch) -> Sequence[int]:
        """Indexes of the partitions in reading order: from the one whose turn it is, wrapping around."""
        count = len(message.partitions)
        turn = self._turns.get(message.broker_id)
        for index, wanted in enumerate(message.partitions if turn else ()):
            if _turn(wanted) == turn:
                return [*range(index, count), *range(index)]
        return range(count)


def _turn(wanted: ReplicaWanted) -> _Turn:
    return wanted.topic_id, wanted.partition


def _is_news(fetched: ReplicaFetched) -> bool:
    return fetched.error is not ErrorCode.NONE or fetched.diverging is not None


def _has_batches(partition: Partition, wanted: ReplicaWanted, fetched: ReplicaFetched) -> bool:
    return fetched.diverging is None and wanted.offset < partition.log.log_end_offset


def _is_enough(message: ReplicaFetch, read: _Read) -> bool:
    return read.size >= message.min_bytes or read.has_news or not read.partitions


def _read_partition(
    services: Services, message: ReplicaFetch, wanted: ReplicaWanted, bytes_max: int
) -> tuple[ReplicaFetched, Partition | None]:
    """One partition's answer, and the partition itself unless the answer is an error."""
    try:
        partition = services.partitions.find(wanted.topic_id, wanted.partition)
        read = fetch_as_replica(
            partition,
            message.broker_id,
            message.broker_epoch,
            wanted.leader_epoch,
            wanted.offset,
            wanted.last_epoch,
            bytes_max,
        )
    except KafkaError as error:
        return ReplicaFetched(error.code), None
    except StorageError as error:
        services.fail_storage(error)
        return ReplicaFetched(ErrorCode.KAFKA_STORAGE_ERROR), None
    return ReplicaFetched(ErrorCode.NONE, *read), partition


def _watch(partitions: Sequence[Partition], wait: LongPoll) -> None:
    for partition in partitions:
        partition.waiters.append.add(wait.arrived)


def _forget(partitions: Sequence[Partition], wait: LongPoll) -> None:
    for partition in partitions:
        partition.waiters.append.remove(wait.arrived)


@contextlib.contextmanager
def _next_append(partitions: Sequence[Partition]) -> Iterator[asyncio.Future[None]]:
    """A future that is done when a log grows, or a role changes, within the block."""
    arrived = asyncio.get_running_loop().create_future()
    for partition in partitions:
        partition.waiters.append.add(arrived)
    try:
        yield arrived
    finally:
        for partition in partitions:
            partition.waiters.append.remove(arrived)
