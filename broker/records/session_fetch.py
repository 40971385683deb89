"""Fetches that continue a session (KIP-227): what is read for them, when they are answered, and with which rows.

Only marked rows are looked at (`fetch_rows.py`), in the session's order. A row is in the answer if it has records, an
error or a divergence, or if its high watermark or log start is not what was answered last; one with records moves to the
end, so that the bytes of an answer go round.

A wait ends with `min_bytes` records, an error or a divergence; not by a high watermark or log start alone, nor by a row
that is refused without being read (unknown, or not allowed), unless there is no other.

The session's epoch has moved on when the request was read. If it moves on again before the answer, another request has
overtaken this one, which is then refused with INVALID_FETCH_SESSION_EPOCH.

Called by `broker/handlers/fetch.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.network.request import Peer
from echoless.broker.network.turns import ROWS_PER_TURN, work_in_turns
from echoless.broker.partitions.long_poll import LongPoll
from echoless.broker.records.fetch import MIN_BYTES_MAX, FetchPass
from echoless.broker.records.fetch_parts import FetchParts
from echoless.broker.records.fetch_rows import UNKNOWN, FetchRow
from echoless.broker.records.fetch_sessions import FetchSession
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.fetch import PartitionFetched, TopicFetched
from echoless.protocol.fetch_request import NO_SESSION, FetchRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echoless.broker.authorization.access import Rights

_REFUSED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of rows that are not read at all."""


class SessionFetched(NamedTuple):
    """The answer to a request of a session."""

    error_code: ErrorCode
    session_id: int = NO_SESSION
    topics: Sequence[TopicFetched] = ()


def is_read(code: ErrorCode) -> bool:
    """Whether a row with this error, or none, was read: others end no wait."""
    return code not in _REFUSED


class _SessionPass(FetchPass):
    """One pass over the marked rows of a session."""

    __slots__ = ("_allowed", "_session", "found", "refused")

    def __init__(
        self,
        parts: FetchParts,
        wanted: FetchRequest,
        peer: Peer,
        session: FetchSession,
        rights: Rights | None,
    ) -> None:
        super().__init__(parts, wanted, peer)
        self.found: list[tuple[FetchRow, PartitionFetched]] = []
        self.refused = 0
        """Rows that could not be read."""
        self._session = session
        self._allowed: Mapping[str, bool] | None = (
            None if rights is None else rights.allowed(AclOperation.READ, ResourceType.TOPIC)
        )

    def read(self) -> bool:
        """Reads all rows, which are few; returns False if one needs more than one step."""
        for row in self._session.in_order():
            if not self._look_at(row) or self.takes_long:
                return False
        return True

    def steps(self) -> Iterator[None]:
        """Reads at most one row per step."""
        for row in self._session.in_order():
            self._passed_to = -1
            while not self._look_at(row):
                yield
            yield

    def _look_at(self, row: FetchRow) -> bool:
        """Reads a row, and takes its mark off if nothing is owed; returns False if it needs more steps."""
        session = self._session
        if session.by_key.get(row.key) is not row:
            return True  # forgotten by another request since the pass began
        had_error = self.has_error
        found = self._denied(row) or self.look(row.topic, row.wanted)
        if found is None:
            return False
        if found.error_code:
            found = self._by_name(row, found)
        self.found.append((row, found))
        if not is_read(found.error_code):
            self.refused += 1
            self.has_error = had_error
        if self.partitions:
            (partition, _) = self.partitions.pop()
            row.name = partition.topic
            session.watch(row, partition)
            end = partition.visible_end(read_committed=self._is_read_committed)
            if row.wanted.offset >= end and not found.records and not is_news(row, found):
                has_uncommitted = end < partition.log.log_end_offset
                session.take_off(row, has_uncommitted=has_uncommitted)
        else:
            session.unwatch(row)
        return True

    def _denied(self, row: FetchRow) -> PartitionFetched | None:
        if self._allowed is None:
            return None
        if row.name is None and not isinstance(row.topic, str):
            topic = self._parts.topics_by_id.get(row.topic)
            row.name = None if topic is None else topic.name
        if row.name is None or self._allowed[row.name]:
            return None
        return PartitionFetched(row.wanted.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _by_name(self, row: FetchRow, found: PartitionFetched) -> PartitionFetched:
        """An id that was known once is no unknown id: its topic is gone, or was made anew."""
        if isinstance(row.topic, str):
            return found
        if found.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
            row.name = self._parts.topics_by_id[row.topic].name
            return found
        if row.name is None:
            return found
        is_anew = row.name in self._parts.topics
        code = ErrorCode.INCONSISTENT_TOPIC_ID if is_anew else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return found._replace(error_code=code)

    @property
    def is_enough(self) -> bool:
        """Whether the client need not wait for more."""
        return (
            self.size >= self._wanted.min_bytes
            or self.size >= MIN_BYTES_MAX
            or self.has_error
            or self.refused >= len(self._session)
        )

    def missing_bytes(self) -> int:
        """The bytes still missing; 0 if records already stored may yet be committed."""
        session = self._session
        if session.uncommitted:
            return 0
        committed = self._is_read_committed
        for row in session.marked:
            partition = row.partition
            if (
                partition is not None
                and partition.visible_end(read_committed=committed) < partition.log.log_end_offset
            ):
                return 0
        return min(self._wanted.min_bytes, MIN_BYTES_MAX) - self.size


def is_news(row: FetchRow, found: PartitionFetched) -> bool:
    """Whether the client has to be sent the row."""
    return (
        bool(found.records)
        or found.high_watermark != row.high_watermark
        or found.log_start_offset != row.log_start_offset
        or bool(found.error_code)
        or found.diverging_epoch is not None
    )


class _SessionFetch:
    """One request of a session that has been brought up to date with it."""

    def __init__(
        self,
        parts: FetchParts,
        wanted: FetchRequest,
        peer: Peer,
        session: FetchSession,
        rights: Rights | None,
    ) -> None:
        self._parts = parts
        self._wanted = wanted
        self._peer = peer
        self._session = session
        self._rights = rights
        self._epoch = session.epoch

    def answer(self) -> SessionFetched | Awaitable[SessionFetched]:
        """The answer, at once or after a wait."""
        session, wanted = self._session, self._wanted
        session.woken.clear()
        if len(session.marked) > ROWS_PER_TURN:
            return self._wait(None)
        one_pass = self._pass()
        if not one_pass.read():
            return self._wait(None)
        if one_pass.is_enough or wanted.max_wait_ms <= 0 or self._parts.stopping.is_set():
            return self._taken(one_pass)
        return self._wait(one_pass)

    def _pass(self) -> _SessionPass:
        return _SessionPass(self._parts, self._wanted, self._peer, self._session, self._rights)

    async def _wait(self, first: _SessionPass | None) -> SessionFetched:
        """Reads until it is enough; `first` is a pass that was not."""
        session, wait_s = self._session, max(self._wanted.max_wait_ms, 0) / 1000
        session.end_wait()
        session.poll = poll = LongPoll()
        poll.end_after(wait_s)
        try:
            one_pass = first or await self._read_again()
            while not (one_pass.is_enough or not wait_s or self._is_over(poll)):
                one_pass.found.clear()  # holds their records: a wait must not keep them in memory
                await self._until_worth_another(one_pass, poll)
                if self._is_overtaken:
                    break
                one_pass = await self._read_again()
            return self._taken(one_pass)
        finally:
            poll.cancel()
            if session.poll is poll:
                session.poll = None

    async def _read_again(self) -> _SessionPass:
        self._session.woken.clear()
        one_pass = self._pass()
        await work_in_turns(one_pass.steps())
        return one_pass

    def _is_over(self, poll: LongPoll) -> bool:
        return (
            poll.is_over or self._parts.stopping.is_set() or self._is_overtaken or not self._session
        )

    @property
    def _is_overtaken(self) -> bool:
        return self._session.epoch != self._epoch

    async def _until_worth_another(self, one_pass: _SessionPass, poll: LongPoll) -> None:
        """Returns when another pass may find enough, or when the wait is over; see `FetchPass.until_worth_another`."""
        session, metrics = self._session, self._parts.metrics
        enough_at = one_pass.appended_before + one_pass.missing_bytes()
        while not self._is_over(poll):
            woken = session.woken.copy()
            session.woken.clear()
            if woken and (metrics.bytes_appended_total >= enough_at or self._has_moved(woken)):
                return
            for row in woken:
                if row.partition is not None:
                    session.watch(row, row.partition)
            if not poll.arrived.done():
                await poll.arrived
            poll.renew()

    def _has_moved(self, woken: list[FetchRow]) -> bool:
        """Whether a row that had an event would now be answered with an error."""
        if self._parts.logs.failure is not None:
            return True
        try:
            for row in woken:
                if row.partition is not None:
                    row.partition.check_leader(row.wanted.leader_epoch)
        except KafkaError:
            return True
        return False

    def _taken(self, one_pass: _SessionPass) -> SessionFetched:
        """The rows that are news, which the session takes for answered."""
        session = self._session
        if self._is_overtaken:
            return SessionFetched(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id)
        topics: list[tuple[object, list[PartitionFetched]]] = []
        for row, found in one_pass.found:
            if not is_news(row, found):
                continue
            row.high_watermark = UNKNOWN if found.error_code else found.high_watermark
            row.log_start_offset = found.log_start_offset
            if found.records:
                session.move_to_end(row)
            if not topics or topics[-1][0] != row.topic:
                topics.append((row.topic, []))
            topics[-1][1].append(found)
        self._parts.metrics.fetch_bytes_total += one_pass.size
        return SessionFetched(ErrorCode.NONE, session.id, topics)  # type: ignore[arg-type]


def fetch_in_session(
    parts: FetchParts,
    wanted: FetchRequest,
    peer: Peer,
    session: FetchSession,
    rights: Rights | None,
) -> SessionFetched | Awaitable[SessionFetched]:
    """The rows of the session that are news, at once or after a wait."""
    version = 0 if rights is None else rights.version
    session.mark_all_under((wanted.isolation_level, rights, version))
    return _SessionFetch(parts, wanted, peer, session, rights).answer()
