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

import uuid
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.network.request import Peer
from echoless.broker.records.fetch import MIN_BYTES_MAX
from echoless.broker.records.fetch_parts import FetchParts
from echoless.broker.records.fetch_rows import UNKNOWN, FetchRow
from echoless.broker.records.fetch_sessions import FetchSession, next_epoch
from echoless.broker.records.marked_fetch import MarkedFetch, MarkedPass
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
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


class _SessionPass(MarkedPass):
    """One pass over the marked rows of a session."""

    __slots__ = ("_allowed", "refused")

    def __init__(
        self,
        parts: FetchParts,
        wanted: FetchRequest,
        peer: Peer,
        session: FetchSession,
        rights: Rights | None,
    ) -> None:
        super().__init__(parts, wanted, peer, session)
        self.refused = 0
        """Rows that could not be read."""
        self._allowed: Mapping[str, bool] | None = (
            None if rights is None else rights.allowed(AclOperation.READ, ResourceType.TOPIC)
        )

    def row_found(self, row: FetchRow) -> PartitionFetched | None:
        had_error = self.has_error
        found = self._denied(row) or self.look(row.topic, row.wanted)
        if not isinstance(row.topic, str):
            found = self._by_name(row, found)
        if found is not None and not is_read(found.error_code):
            self.refused += 1
            self.has_error = had_error
        return found

    def is_settled(self, row: FetchRow, found: PartitionFetched) -> bool:
        return not is_news(row, found)

    def _denied(self, row: FetchRow) -> PartitionFetched | None:
        if self._allowed is None:
            return None
        if row.name is None and not isinstance(row.topic, str):
            topic = self._parts.topics_by_id.get(row.topic)
            row.name = None if topic is None else topic.name
        if row.name is None or self._allowed[row.name]:
            return None
        return PartitionFetched(row.wanted.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    @property
    def is_enough(self) -> bool:
        """Whether the client need not wait for more."""
        return (
            self.size >= self._wanted.min_bytes
            or self.size >= MIN_BYTES_MAX
            or self.has_error
            or self.refused >= len(self.rows)
        )

    def _by_name(self, row: FetchRow, found: PartitionFetched | None) -> PartitionFetched | None:
        """An id that was known once is no unknown id: its topic is gone, or was made anew."""
        topic = None if isinstance(row.topic, str) else self._parts.topics_by_id.get(row.topic)
        if topic is not None:
            row.name = topic.name
        if found is None or row.name is None or found.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
            return found
        is_anew = row.name in self._parts.topics
        code = ErrorCode.INCONSISTENT_TOPIC_ID if is_anew else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return found._replace(error_code=code)


def is_news(row: FetchRow, found: PartitionFetched) -> bool:
    """Whether the client has to be sent the row."""
    return (
        bool(found.records)
        or found.high_watermark != row.high_watermark
        or found.log_start_offset != row.log_start_offset
        or bool(found.error_code)
        or found.diverging_epoch is not None
    )


class _SessionFetch(MarkedFetch[SessionFetched]):
    """One request of a session that has been brought up to date with it."""

    def __init__(
        self,
        parts: FetchParts,
        wanted: FetchRequest,
        peer: Peer,
        session: FetchSession,
        rights: Rights | None,
    ) -> None:
        super().__init__(parts, wanted, peer, session)
        self._session = session
        self._rights = rights
        self._epoch = next_epoch(wanted.session_epoch)

    def new_pass(self) -> _SessionPass:
        return _SessionPass(self._parts, self._wanted, self._peer, self._session, self._rights)

    @property
    def is_overtaken(self) -> bool:
        return self._session.epoch != self._epoch

    def taken(self, one_pass: MarkedPass) -> SessionFetched:
        """The rows that are news, which the session takes for answered."""
        session = self._session
        if self.is_overtaken:
            return SessionFetched(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id)
        topics: list[tuple[str | uuid.UUID, list[PartitionFetched]]] = []
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
        return SessionFetched(ErrorCode.NONE, session.id, topics)


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
