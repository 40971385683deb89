"""`replica_fetch`: a follower's long poll for batches of the partitions that it follows here.

Followers open sessions, and fetch by difference (`replica_session.py`); those of earlier releases name all partitions each
time, and are answered as follows.

Answers at once when `min_bytes` are available, when a partition has an error or a divergence, or when
`max_wait_ms` is 0; otherwise waits for appends, at most that long. Reading a partition also tells it
how far the follower has come, so every partition is read, even if no bytes are left to send.

The usual wait is over with the first append, and holds a promise instead of a task: what is read when the answer is
taken, at the end of that step of the loop, holds all that was appended in it.

`bytes_max` goes to the partitions in turn: a fetch begins with the first one that came up short in the
previous fetch, so that a busy partition never starves the others. The answer keeps the order of the
message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from echoless.broker.native.framed import AnswerFields
from echoless.broker.native.replica_pass import ReplicaPass, Turn, turn_of
from echoless.broker.native.replica_sessions import ReplicaSessions
from echoless.broker.network.promise import Promise
from echoless.broker.network.request import Peer
from echoless.broker.network.turns import ROWS_PER_TURN, work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.deadlines import Deadlines
from echoless.protocol.native.replica_fetch_answer import ReplicaFetchAnswer
from echoless.protocol.native.replica_session import ReplicaWake, SessionFetch
from echoless.protocol.native.replication import ReplicaFetch

if TYPE_CHECKING:
    from echoless.broker.services import Services


class _Wait(Promise):
    """A fetch that the next append answers, or the next change of a role, or its deadline."""

    __slots__ = ("_deadlines", "_read", "_tick", "_watched")

    waits_for_others = True

    def __init__(
        self,
        read: Callable[[], ReplicaFetchAnswer],
        watched: Collection[Partition],
        deadlines: Deadlines,
        seconds: float,
    ) -> None:
        """Begins to wait in this step: no append can come before. `read` makes the answer."""
        super().__init__()
        self._read = read
        self._watched = watched
        self._deadlines = deadlines
        self._tick = deadlines.add(self, seconds)
        for partition in watched:
            partition.waiters.append.add(self)

    def done(self) -> bool:
        return self.is_ready

    def set_result(self, _: None) -> None:
        """Notes that there is something new."""
        self._deadlines.discard(self, self._tick)
        self.expire()

    def expire(self) -> None:
        """Ends the wait: the answer is what there is."""
        self._forget()
        self._become_ready()

    def abandon(self) -> None:
        """Ends the wait: the follower is gone. Does nothing once the answer is ready."""
        if not self.is_ready:
            self._deadlines.discard(self, self._tick)
            self._forget()

    def _forget(self) -> None:
        for partition in self._watched:
            partition.waiters.append.remove(self)

    def _result(self) -> ReplicaFetchAnswer:
        return self._read()


class ReplicaFetches:
    """Answers the fetches of all followers."""

    def __init__(self) -> None:
        self.sessions = ReplicaSessions()
        self._turns: dict[int, Turn] = {}
        """Broker id of a follower -> the partition to read first in its next fetch."""
        self._deadlines = Deadlines()

    def handle(
        self, message: ReplicaFetch | SessionFetch, _peer: Peer, services: Services
    ) -> AnswerFields | Awaitable[AnswerFields]:
        """The available batches, at once or after a wait. Raises `KafkaError` if the session is not the present one."""
        if isinstance(message, SessionFetch):
            return self.sessions.handle(message, services)
        if len(message.partitions) > ROWS_PER_TURN:
            return self._answer_in_turns(services, message)
        read = self._read(services, message)
        if read.is_enough or message.max_wait_ms == 0 or services.stopping.is_set():
            return ReplicaFetchAnswer(read.fetched)
        if message.min_bytes > 1:  # an append may not be enough
            return self._answer_in_turns(services, message)
        watched = read.partitions
        answer = partial(self._answer, services, message, watched)
        return _Wait(answer, watched.values(), self._deadlines, message.max_wait_ms / 1000)

    def handle_wake(
        self, message: ReplicaWake, _peer: Peer, _services: Services
    ) -> AnswerFields | Awaitable[AnswerFields]:
        """Ends the wait of a session."""
        return self.sessions.wake(message)

    def _answer(
        self, services: Services, message: ReplicaFetch, watched: Mapping[int, Partition]
    ) -> ReplicaFetchAnswer:
        """Answers with what is there now in partitions that had nothing when the wait began."""
        read = ReplicaPass(message)
        for index in self._order(message):
            read.read_further(index, watched[index], services)
        self._note_short(message, read)
        return ReplicaFetchAnswer(read.fetched)

    async def _answer_in_turns(
        self, services: Services, message: ReplicaFetch
    ) -> ReplicaFetchAnswer:
        """Answers for thousands of partitions, with other requests in between, or after several appends.

        Appends may come between the turns, so a pass that ends in a wait is watched from its beginning: by
        the waiters of the partitions that the pass before it has found.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + message.max_wait_ms / 1000
        watched: Collection[Partition] = ()
        while True:
            with _next_append(watched) as arrived:
                read = ReplicaPass(message)
                await work_in_turns(self._steps(services, message, read))
                timeout_s = deadline - loop.time()
                if read.is_enough or timeout_s <= 0 or services.stopping.is_set():
                    return ReplicaFetchAnswer(read.fetched)
                was_watched, watched = bool(watched), read.partitions.values()
                del read  # holds batches: a wait must not keep them in memory
                if was_watched:
                    await asyncio.wait((arrived,), timeout=timeout_s)

    def _read(self, services: Services, message: ReplicaFetch) -> ReplicaPass:
        read = ReplicaPass(message)
        for index in self._order(message):
            read.read(index, services)
        self._note_short(message, read)
        return read

    def _steps(
        self, services: Services, message: ReplicaFetch, read: ReplicaPass
    ) -> Iterator[None]:
        """Makes the pass, a partition a step."""
        for index in self._order(message):
            read.read(index, services)
            yield
        self._note_short(message, read)

    def _note_short(self, message: ReplicaFetch, read: ReplicaPass) -> None:
        if read.short is not None:
            self._turns[message.broker_id] = read.short

    def _order(self, message: ReplicaFetch) -> Sequence[int]:
        """Indexes of the partitions in reading order: from the one whose turn it is, wrapping around."""
        count = len(message.partitions)
        turn = self._turns.get(message.broker_id) if count > 1 else None
        for index, wanted in enumerate(message.partitions if turn else ()):
            if turn_of(wanted) == turn:
                return [*range(index, count), *range(index)]
        return range(count)


@contextlib.contextmanager
def _next_append(partitions: Collection[Partition]) -> Iterator[asyncio.Future[None]]:
    """A future that is done when a log grows, or a role changes, within the block."""
    arrived = asyncio.get_running_loop().create_future()
    for partition in partitions:
        partition.waiters.append.add(arrived)
    try:
        yield arrived
    finally:
        for partition in partitions:
            partition.waiters.append.remove(arrived)
