"""Fetch sessions (KIP-227): the partitions that a client has named once, and the sessions of all clients.

A session belongs to no connection: whoever names its id and the epoch that it expects continues it. It lives until it is
ended by its client, until it has no rows any more, or until another needs its place; nothing ends by the clock, and a
restart ends all.

A new session gets a place, while all are taken, from

1. the session that was used least recently, if that was more than 120 s ago; otherwise
2. the least by (is a follower's, rows, id) among those that were used for more than 120 s after they had been opened; for
   a follower, also among all consumers'. It goes only if the new one is not less.

As in Kafka; unlike there all places are one shard, so fewer than eight work too, and the rows of all sessions are
bounded (docs/decisions/fetch-sessions.md). Which rows an answer holds: `session_fetch.py`.

Invariant: at most `slots_max` sessions, with at most `ROWS_MAX` rows.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from echoless.broker.limited_log import LimitedLog
from echoless.broker.records.fetch_rows import FetchRows
from echoless.protocol.fetch_request import NO_SESSION

if TYPE_CHECKING:
    import uuid

    from echoless.broker.metrics import Metrics
    from echoless.protocol.fetch import PartitionFetched
    from echoless.protocol.fetch_request import FetchPartition, FetchTopic, ForgottenTopic

logger = logging.getLogger(__name__)
limited: Final = LimitedLog(logger)

EVICTABLE_AFTER_MS: Final = 120_000
"""A session in use for so long gives its place to a larger one; one unused for so long to any."""
ROWS_MAX: Final = 100_000
"""Rows of all sessions, at about 550 bytes each."""
ID_MAX: Final = 2**31 - 1
EPOCH_MAX: Final = 2**31 - 1
FIRST_EPOCH: Final = 1
_Rank = tuple[bool, int, int]
"""Whether it is a follower's, its rows, its id: of the sessions that may be evicted, the least goes first."""


def next_epoch(epoch: int) -> int:
    """The epoch that a client sends after this one."""
    return FIRST_EPOCH if epoch == EPOCH_MAX else epoch + 1


class FetchSession(FetchRows):
    """The rows that one client has named, and the epoch of its next request."""

    __slots__ = (
        "counted",
        "epoch",
        "id",
        "is_follower",
        "opened_ms",
        "rank",
        "ranks",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(self, *, is_follower: bool, uses_topic_ids: bool) -> None:
        super().__init__()
        self.id = NO_SESSION
        self.epoch = FIRST_EPOCH
        """The epoch of the next request."""
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.counted = 0
        """The rows that `FetchSessions.rows` has of it."""
        self.opened_ms = 0
        self.used_ms = 0
        self.rank: _Rank = (is_follower, 0, 0)
        self.ranks: list[_Rank] | None = None
        """The list in which its rank stands; None: it gives its place only when it is unused."""

    def add_answered(
        self,
        topic: str | uuid.UUID,
        wanted: FetchPartition,
        found: PartitionFetched,
        name: str | None = None,
    ) -> None:
        """Adds a row of the request that opens the session, and what was answered; `name` is that of a known id."""
        row = self.name_row(topic, wanted)
        row.high_watermark = found.high_watermark
        row.log_start_offset = found.log_start_offset
        if name is not None:
            row.name = name

    def begin(self) -> None:
        """Takes the request of this epoch: the next one is expected from now on."""
        self.epoch = next_epoch(self.epoch)

    def update(
        self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]
    ) -> Iterator[None]:
        """Adds and changes the rows that a request names, then forgets the others, one per step."""
        for topic, wanted in topics:
            for row in wanted:
                self.name_row(topic, row)
                yield
        for topic, indexes in forgotten:
            for index in indexes:
                self.forget((topic, index))
                yield


class FetchSessions:
    """The sessions of one broker."""

    def __init__(
        self, slots_max: int, *, now_ms: Callable[[], int], rng: Random, metrics: Metrics
    ) -> None:
        """`now_ms` is a clock that is never set."""
        self.slots_max = slots_max
        self.is_declined = slots_max == 0
        """Whether no one may have a session: every request has to name all its rows."""
        self.rows = 0
        """Rows of all sessions."""
        self._now_ms = now_ms
        self._rng = rng
        self._metrics = metrics
        self._by_id: dict[int, FetchSession] = {}
        """The session that was used least recently comes first."""
        self._old: list[_Rank] = []
        """Ranks of the sessions that give their place to a larger one, the least first."""
        self._young: list[_Rank] = []
        """Ranks of the consumers' sessions that give their place to a follower's alone."""

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, id_: int) -> FetchSession | None:
        """The session of this id."""
        return self._by_id.get(id_)

    def decline(self, *, is_declined: bool) -> None:
        """Ends all sessions and opens none, until it is called with False."""
        self.is_declined = is_declined or self.slots_max == 0
        if self.is_declined and self._by_id:
            logger.info("ended %d fetch sessions: their requests name no rows", len(self))
            for id_ in list(self._by_id):
                self.end(id_)

    def new(self, *, is_follower: bool, uses_topic_ids: bool) -> FetchSession:
        """A session that no one can continue until it is added."""
        return FetchSession(is_follower=is_follower, uses_topic_ids=uses_topic_ids)

    def add(self, session: FetchSession) -> bool:
        """Gives a new session an id and a place; drops it and returns False if there is none."""
        if self.is_declined or not self._has_room(session):
            session.close()
            return False
        while session.id == NO_SESSION or session.id in self._by_id:
            session.id = self._rng.randint(1, ID_MAX)
        session.opened_ms = self._now_ms()
        self._by_id[session.id] = session
        self._metrics.fetch_sessions_opened_total += 1
        self._count(session)
        self._touch(session)
        return True

    def settle(self, session: FetchSession) -> bool:
        """Notes that the session was used, and has the rows that it has now.

        Ends it and returns False if it has none, or all sessions together have too many.
        """
        if self._by_id.get(session.id) is not session:
            return False
        self._count(session)
        if not session or self.rows > ROWS_MAX:
            self.end(session.id)
            return False
        self._touch(session)
        return True

    def end(self, id_: int) -> None:
        """Ends the session, if there is one."""
        session = self._by_id.pop(id_, None)
        if session is not None:
            _unrank(session)
            session.close()
            self._count(session)

    def _touch(self, session: FetchSession) -> None:
        """Notes that the session was used now."""
        now_ms = session.used_ms = self._now_ms()
        self._by_id[session.id] = self._by_id.pop(session.id)
        ranks: list[_Rank] | None = None if session.is_follower else self._young
        if now_ms - session.opened_ms > EVICTABLE_AFTER_MS:
            ranks = self._old
        if ranks is not session.ranks or len(session) != session.rank[1]:
            _unrank(session)
            session.rank, session.ranks = (session.is_follower, len(session), session.id), ranks
            if ranks is not None:
                insort(ranks, session.rank)

    def _has_room(self, session: FetchSession) -> bool:
        """Whether there is a place, and room for its rows; evicts what gives its place."""
        while self.rows + len(session) > ROWS_MAX:
            if not self._evict_unused():
                return False
        if len(self._by_id) < self.slots_max or self._evict_unused():
            return True
        evictable = self._old[:1]
        if session.is_follower:
            evictable += self._young[:1]
        if not evictable or (session.is_follower, len(session), 0) < min(evictable):
            return False
        self._evict(self._by_id[min(evictable)[2]])
        return True

    def _evict_unused(self) -> bool:
        session = next(iter(self._by_id.values()), None)
        if session is None or self._now_ms() - session.used_ms <= EVICTABLE_AFTER_MS:
            return False
        self._evict(session)
        return True

    def _evict(self, session: FetchSession) -> None:
        unused_s = (self._now_ms() - session.used_ms) // 1000
        message = "evicted a fetch session of %d rows, unused for %d s, to make room for another"
        limited.log(logging.INFO, "", message, len(session), unused_s)
        self._metrics.fetch_sessions_evicted_total += 1
        self.end(session.id)

    def _count(self, session: FetchSession) -> None:
        self.rows += len(session) - session.counted
        session.counted = len(session)
        self._metrics.fetch_sessions = len(self._by_id)
        self._metrics.fetch_session_rows = self.rows


def _unrank(session: FetchSession) -> None:
    if session.ranks is not None:
        del session.ranks[bisect_left(session.ranks, session.rank)]
        session.ranks = None
