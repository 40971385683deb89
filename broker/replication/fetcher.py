"""Fetches all partitions that are followed from one other broker, one request at a time.

One round: a piece of producer state for each partition that starts afresh, then one fetch by long poll. It names the
partitions of which this broker has something new to say (`followed.py`, `leader_session.py`), and brings batches of any
that it follows. A fetch says how far this broker's logs go, by which the leader commits;
with `log_flush=commit` it therefore waits until the fetched batches are on disk.

A partition whose leader refuses (it has not been notified of its new role, or this broker has not)
backs off for a moment, and so does one that lacks a descriptor; the pause for an unreachable leader
grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from echoless.broker.config.loading import Address
from echoless.broker.essential_task import reported_task
from echoless.broker.limited_log import RetryLog
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.log_changes import LogChange, LogChanges
from echoless.broker.partitions.partition import Partition
from echoless.broker.replication.followed import Followed, takes_what_is_fetched
from echoless.broker.replication.follower import Follower
from echoless.broker.replication.leader_session import LeaderSession
from echoless.broker.replication.peers import PeerError, Peers
from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.native.replica_session import NAMED_MAX, ReplicaWake
from echoless.protocol.native.replication import (
    ReplicaFetch,
    ReplicaFetched,
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
        self._followed = Followed()
        self._session_numbers = itertools.count(1)
        self._session: LeaderSession | None = self._new_session()
        """None while the leader knows no sessions: then each fetch names all partitions."""
        self._changed = asyncio.Event()
        self._pause_s = PAUSE_MIN_S
        self._is_waiting = False
        """Whether a long poll is under way, and nobody has ended it."""
        self._waking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Follows the partition in its present leader epoch."""
        self.remove(partition.name)
        self._followed.add(Follower(partition, self._context.metrics))
        if self._is_waiting:
            # The fetch under way does not ask for it, and may wait for long: ask again instead.
            self._is_waiting = False
            if self._session is None:
                self._context.peers.disconnect(self.leader_id)
            else:
                waking = self._end_wait(self._session.number)
                self._waking = reported_task(waking, f"waking broker {self.leader_id}")
        self.wake()

    def remove(self, name: str) -> None:
        """Stops following the partition; an answer that is on its way is ignored."""
        follower = self._followed.remove(name)
        if follower is not None and self._session is not None:
            self._session.forget(follower)

    def wake(self) -> None:
        """Retries at once: something has changed that makes it worthwhile."""
        self._pause_s = PAUSE_MIN_S
        self._changed.set()

    async def run(self) -> None:
        """Runs until cancelled, or until the disk fails."""
        while True:
            self._changed.clear()
            try:
                self._followed.resume(_now_s())
                if self._has_work:
                    await self._round()
                    self._pause_s = PAUSE_MIN_S
                else:
                    await self._wait(self._next_due_s())
            except PeerError as error:
                self._begin_anew()
                if not self._changed.is_set():
                    self._log("cannot fetch from broker %d: %s", self.leader_id, error)
                await self._wait(self._pause_s)
                self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
            except OutOfDescriptorsError as error:
                self._begin_anew()
                self._context.on_failure(error)
                await self._wait(PAUSE_MAX_S)
            except StorageError as error:
                self._context.on_failure(error)
                return

    def _new_session(self, *, replaces: bool = False) -> LeaderSession:
        return LeaderSession(next(self._session_numbers), replaces=replaces)

    def _begin_anew(self) -> None:
        """Opens a session with the next message, in which all partitions are named."""
        before, address = self._session, self._context.address_of(self.leader_id)
        has_rows = before is not None and before.may_have_rows and address is not None
        self._session = self._new_session(replaces=has_rows)
        self._followed.ask_all()

    @property
    def _has_work(self) -> bool:
        """Whether there is anything to say, or to wait for."""
        followed, session = self._followed, self._session
        return bool(followed.to_name or followed.starting) or (
            session is not None and session.is_needed
        )

    async def _change(self, changes: Sequence[tuple[Follower, LogChange]]) -> None:
        """Has the logs changed, together: a new leader may have many cut. Raises `StorageError`."""
        if not changes:
            return
        await self._context.log_changes.make([change for _, change in changes])
        for follower, change in changes:
            with self._pausing_if_refused(follower):
                change.check()
                self._followed.ask(follower)

    def _next_due_s(self) -> float | None:
        """Seconds until the next pause of a follower is over; None if none is paused."""
        due_s = self._followed.next_due_s()
        return None if due_s is None else max(due_s - _now_s(), 0.001)

    async def _wait(self, seconds: float | None) -> None:
        # Not `wait_for`, which forgets a cancellation that comes together with the change.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _round(self) -> None:
        followed = self._followed
        for follower in followed.all_starting():
            await self._fetch_snapshot_piece(follower)
        named = followed.take_named(None if self._session is None else NAMED_MAX)
        await self._make_durable(named)
        ready = []
        for follower in named:
            if not takes_what_is_fetched(follower):
                continue  # a change of its log may just have failed half-way
            # The wait ends when the disk fails, too: then nothing that had to be kept may be claimed.
            if follower.bootstrap is None and _is_durable(follower.partition):
                ready.append(follower)
            else:
                followed.ask(follower)
        if ready or (self._session is not None and self._session.is_needed):
            await self._fetch(ready)

    async def _fetch(self, followers: Sequence[Follower]) -> None:
        """Says how far the logs of these go; takes what the leader has for them, or for any others of the session."""
        session = self._session
        max_wait_ms = self._max_wait_ms()
        if session is None:
            message = self._fetch_of_all(followers, max_wait_ms)
        else:
            message = session.message(
                followers,
                broker_id=self._context.broker_id,
                broker_epoch=self._context.broker_epoch(),
                max_wait_ms=max_wait_ms,
                bytes_max=BYTES_MAX,
            ).to_message()
        self._is_waiting = max_wait_ms > 0
        try:
            answer = await self._call(message)
        finally:
            self._is_waiting = False
        try:
            fetched = None if session is None else session.read_answer(answer)
            if fetched is None:
                self._session = None
                wanted = [follower.wanted() for follower in followers]
                fetched = [*zip(followers, read_replica_fetch_answer(answer, wanted), strict=True)]
        except (KafkaError, DecodeError) as error:
            raise PeerError(f"it answered: {error}") from error
        await self._take(fetched)

    def _fetch_of_all(self, followers: Sequence[Follower], max_wait_ms: int) -> dict[str, object]:
        return ReplicaFetch(
            broker_id=self._context.broker_id,
            broker_epoch=self._context.broker_epoch(),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            bytes_max=BYTES_MAX,
            partitions=[follower.wanted() for follower in followers],
        ).to_message()

    def _max_wait_ms(self) -> int:
        """The time for which the leader may hold the fetch: until something else has to be said."""
        if self._followed.starting or self._followed.to_name:
            return 0
        due_s = self._next_due_s()
        if due_s is None or self._session is None:
            return MAX_WAIT_MS
        return min(math.ceil(1000 * due_s), MAX_WAIT_MS)

    async def _take(self, fetched: Sequence[tuple[Follower, ReplicaFetched]]) -> None:
        """Applies what the leader has sent."""
        changes: list[tuple[Follower, LogChange]] = []
        try:
            for follower, one in fetched:
                if takes_what_is_fetched(follower) and follower.bootstrap is None:
                    with self._pausing_if_refused(follower):
                        change = follower.take(one, self._context.now_ms())
                        if change is not None:
                            changes.append((follower, change))
                        elif self._has_more_to_say(follower, one):
                            self._followed.ask(follower)
        finally:
            await self._change(changes)  # whatever became of the others: their logs wait for it

    def _has_more_to_say(self, follower: Follower, fetched: ReplicaFetched) -> bool:
        """Whether the leader does not know all: always, if it knows no sessions."""
        return (
            self._session is None
            or bool(fetched.batches)
            or fetched.diverging is not None
            or follower.bootstrap is not None
        )

    async def _fetch_snapshot_piece(self, follower: Follower) -> None:
        bootstrap = follower.bootstrap
        assert bootstrap is not None
        wanted = bootstrap.wanted(self._context.broker_id, SNAPSHOT_BYTES_MAX)
        answer = await self._call(wanted.to_message())
        if follower.is_current and follower.bootstrap is bootstrap:
            change = None
            with self._pausing_if_refused(follower):
                piece = read_replica_snapshot_answer(answer, wanted)
                change = bootstrap.take(piece, self._context.now_ms())
            if change is not None:
                await self._change([(follower, change)])

    async def _end_wait(self, session: int) -> None:
        """Has the leader answer the fetch under way; if that fails, its wait ends with its time."""
        message = ReplicaWake(self._context.broker_id, session)
        with contextlib.suppress(PeerError):
            await self._call(message.to_message())

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
    def _pausing_if_refused(self, follower: Follower) -> Iterator[None]:
        try:
            yield
        except (KafkaError, DecodeError) as error:
            self._log("%s: broker %d: %s", follower.partition.name, self.leader_id, error)
            if follower.bootstrap is not None:
                follower.restart_bootstrap()
            self._followed.pause(follower, _now_s() + REFUSED_PAUSE_S)
        except OutOfDescriptorsError as error:
            self._context.on_failure(error)
            self._followed.pause(follower, _now_s() + PAUSE_MAX_S)

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
