"""Fetches all partitions that are followed from one other broker, one request at a time.

One round: a piece of producer state for each partition that starts afresh, then one fetch for all
others, by long poll. The next fetch says how far this broker's logs go, by which the leader commits;
with `log_flush=commit` it therefore waits until the fetched batches are on disk.

A partition whose leader refuses (it has not been notified of its new role, or this broker has not)
backs off for a moment, and so does one that lacks a descriptor; the pause for an unreachable leader
grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from echoless.broker.config.loading import Address
from echoless.broker.limited_log import RetryLog
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.log_changes import LogChange, LogChanges
from echoless.broker.partitions.partition import Partition
from echoless.broker.replication.follower import Follower
from echoless.broker.replication.peers import PeerError, Peers
from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.native.replication import (
    ReplicaFetch,
    read_replica_fetch_answer,
    read_replica_snapshot_answer,
)
from echoless.storage.file_system import OutOfDescriptorsError, StorageError

logger = logging.getLogger(__name__)
limited: Final = RetryLog(logger)

MAX_WAIT_MS: Final = 500
"""Time that a leader with no new data holds a fetch (Kafka's `replica.fetch.wait.max.ms`)."""
BYTES_MAX: Final = 3 * 1024 * 1024
"""Size limit of one response (Kafka's `replica.fetch.response.max.bytes`); a larger batch comes whole.

Below the 4 MB from which memory is taken from the kernel each time (`broker/allocator.py`), and that a socket's buffer holds.
"""
SNAPSHOT_BYTES_MAX: Final = 1024 * 1024
SILENCE_MAX_S: Final = 3.0
"""Silence allowed to a leader: longer than it may hold a fetch, far less than followers may lag."""
REFUSED_PAUSE_S: Final = 0.05
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0


@dataclass(slots=True, frozen=True, kw_only=True)
class FetcherContext:
    """The parts that all fetchers of a broker share."""

    broker_id: int
    broker_epoch: Callable[[], int]
    """This broker's epoch: the session under which it is registered."""
    address_of: Callable[[int], Address | None]
    """Returns the address of a broker's native port; None while it is not registered."""
    peers: Peers
    log_changes: LogChanges
    now_ms: Callable[[], int]
    """The data directory's clock, by which idle producers expire."""
    metrics: Metrics
    on_failure: Callable[[StorageError], None]


class Fetcher:
    """Fetches all partitions followed from one broker."""

    def __init__(self, leader_id: int, context: FetcherContext) -> None:
        self.leader_id = leader_id
        self._context = context
        self._followers: dict[str, Follower] = {}
        """Followers by partition name."""
        self._backs_off_until_s: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._pause_s = PAUSE_MIN_S
        self._is_waiting = False
        """Whether a long poll is under way."""

    def __len__(self) -> int:
        return len(self._followers)

    def add(self, partition: Partition) -> None:
        """Follows the partition in its present leader epoch."""
        self._followers[partition.name] = Follower(partition, self._context.metrics)
        self._backs_off_until_s.pop(partition.name, None)
        if self._is_waiting:
            # The fetch under way does not ask for it, and may wait for long: ask again instead.
            self._context.peers.disconnect(self.leader_id)
        self.wake()

    def remove(self, name: str) -> None:
        """Stops following the partition; an answer that is on its way is ignored."""
        self._followers.pop(name, None)
        self._backs_off_until_s.pop(name, None)

    def wake(self) -> None:
        """Retries at once: something has changed that makes it worthwhile."""
        self._pause_s = PAUSE_MIN_S
        self._changed.set()

    async def run(self) -> None:
        """Runs until cancelled, or until the disk fails."""
        while True:
            self._changed.clear()
            try:
                ready = self._ready()
                if ready:
                    await self._round(ready)
                    self._pause_s = PAUSE_MIN_S
                else:
                    await self._wait(self._next_due_s())
            except PeerError as error:
                if not self._changed.is_set():
                    self._log("cannot fetch from broker %d: %s", self.leader_id, error)
                await self._wait(self._pause_s)
                self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
            except OutOfDescriptorsError as error:
                self._context.on_failure(error)
                await self._wait(PAUSE_MAX_S)
            except StorageError as error:
                self._context.on_failure(error)
                return

    def _ready(self) -> list[Follower]:
        now_s = _now_s()
        return [one for one in self._current() if self._due_s(one) <= now_s]

    def _current(self) -> Iterator[Follower]:
        """The followers whose logs take what is fetched; not after a change that failed half-way."""
        return (
            follower
            for follower in self._followers.values()
            if follower.is_current and follower.partition.log.failure is None
        )

    async def _change(self, changes: Sequence[tuple[Follower, LogChange]]) -> None:
        """Has the logs changed, together: a new leader may have many cut. Raises `StorageError`."""
        if not changes:
            return
        await self._context.log_changes.make([change for _, change in changes])
        for follower, change in changes:
            with self._backing_off(follower):
                change.check()

    def _due_s(self, follower: Follower) -> float:
        return self._backs_off_until_s.get(follower.partition.name, 0.0)

    def _next_due_s(self) -> float | None:
        """Seconds until the next backed-off follower is due; None if none is backed off."""
        ends = [self._due_s(one) for one in self._current()]
        return max(min(ends) - _now_s(), 0.001) if ends else None

    async def _wait(self, seconds: float | None) -> None:
        # Not `wait_for`, which forgets a cancellation that comes together with the change.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _round(self, ready: Sequence[Follower]) -> None:
        starting = [one for one in ready if one.bootstrap is not None]
        for follower in starting:
            await self._fetch_snapshot_piece(follower)
        # A change of a log may just have failed half-way: no flush of it comes any more.
        ready = [one for one in ready if one.partition.log.failure is None]
        await self._make_durable(ready)
        fetching = [one for one in ready if one.bootstrap is None and one.is_current]
        # The wait ends when the disk fails, too: then nothing that had to be kept may be claimed.
        fetching = [one for one in fetching if _is_durable(one.partition)]
        if fetching:
            await self._fetch(fetching, max_wait_ms=0 if starting else MAX_WAIT_MS)

    async def _fetch(self, followers: Sequence[Follower], max_wait_ms: int) -> None:
        context = self._context
        wanted = [follower.wanted() for follower in followers]
        message = ReplicaFetch(
            broker_id=context.broker_id,
            broker_epoch=context.broker_epoch(),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            bytes_max=BYTES_MAX,
            partitions=wanted,
        )
        self._is_waiting = max_wait_ms > 0
        try:
            answer = await self._call(message.to_message())
        finally:
            self._is_waiting = False
        try:
            fetched = read_replica_fetch_answer(answer, wanted)
        except (KafkaError, DecodeError) as error:
            raise PeerError(f"it answered: {error}") from error
        changes: list[tuple[Follower, LogChange]] = []
        try:
            for follower, one in zip(followers, fetched, strict=True):
                if follower.is_current:
                    with self._backing_off(follower):
                        change = follower.take(one, context.now_ms())
                        if change is not None:
                            changes.append((follower, change))
        finally:
            await self._change(changes)  # whatever became of the others: their logs wait for it

    async def _fetch_snapshot_piece(self, follower: Follower) -> None:
        bootstrap = follower.bootstrap
        assert bootstrap is not None
        wanted = bootstrap.wanted(self._context.broker_id, SNAPSHOT_BYTES_MAX)
        answer = await self._call(wanted.to_message())
        if follower.is_current and follower.bootstrap is bootstrap:
            change = None
            with self._backing_off(follower):
                piece = read_replica_snapshot_answer(answer, wanted)
                change = bootstrap.take(piece, self._context.now_ms())
            if change is not None:
                await self._change([(follower, change)])

    async def _call(self, message: dict[str, object]) -> dict[str, object]:
        address = self._context.address_of(self.leader_id)
        if address is None:
            raise PeerError("it is not registered")
        return await self._context.peers.call(
            self.leader_id, address, message, timeout_s=SILENCE_MAX_S
        )

    def _log(self, message: str, *arguments: object) -> None:
        """Logs a failure that the next round may repeat, as all partitions of this leader may."""
        limited.log(logging.INFO, f"broker {self.leader_id}", message, *arguments)

    @contextlib.contextmanager
    def _backing_off(self, follower: Follower) -> Iterator[None]:
        name = follower.partition.name
        self._backs_off_until_s.pop(name, None)
        try:
            yield
        except (KafkaError, DecodeError) as error:
            self._log("%s: broker %d: %s", name, self.leader_id, error)
            self._backs_off_until_s[name] = _now_s() + REFUSED_PAUSE_S
            if follower.bootstrap is not None:
                follower.restart_bootstrap()
        except OutOfDescriptorsError as error:
            self._context.on_failure(error)
            self._backs_off_until_s[name] = _now_s() + PAUSE_MAX_S

    async def _make_durable(self, followers: Sequence[Follower]) -> None:
        """Makes what the next fetch claims to have as safe as `log_flush` asks for.

        That includes what a restart has found: it may have been written but not flushed.
        """
        for follower in followers:
            partition = follower.partition
            if follower.is_current and not _is_durable(partition):
                partition.mark_dirty()
                with contextlib.suppress(KafkaError):  # another role: no one asks any more
                    await partition.waiters.flush.wait_for(partition.log.log_end_offset)


def _is_durable(partition: Partition) -> bool:
    return partition.durable_offset >= partition.log.log_end_offset


def _now_s() -> float:
    return asyncio.get_running_loop().time()
