"""Fetch requests that open, continue or end a session (KIP-227), and their answers.

| epoch | request | session |
|---|---|---|
| 0 | names all rows | the one named ends; another is opened with the rows of the answer, if there is room |
| -1 | names all rows | the one named ends |
| above 0 | names what is new or changed, and what to forget | continues, if this is the epoch that it expects |

A request that cannot continue a session is refused with 70 (there is none of this id), 71 (another epoch) or 106 (opened
by names, and continued by ids, or the reverse), in this order, with no rows and id 0, and the session stays as it is. One
that leaves no rows in the session ends it: the answer has id 0, and the client opens another.

While a client waits in a session, what it sends behind that on the same connection waits as well, as in Kafka, which
processes a connection's requests one after the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

from echoless.broker.handlers.permits import denied_topics, rights_of
from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import ROWS_PER_TURN, for_client, work_in_turns
from echoless.broker.records.fetch import count_rows, fetch
from echoless.broker.records.fetch_sessions import FetchSession
from echoless.broker.records.session_fetch import SessionFetched, fetch_in_session, is_read
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from echoless.protocol.fetch import PartitionFetched, TopicFetched, encode_fetch_response
from echoless.protocol.fetch_request import (
    NO_REPLICA,
    NO_SESSION,
    NO_SESSION_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)

if TYPE_CHECKING:
    from echoless.broker.services import Services

_Process = Callable[[Request, "Services"], Outcome]
OPENS: Final = 0
"""The session epoch of a request that names all its rows and asks for a session."""
_IDS_FROM: Final = 13
"""The version that names topics by id."""


def asks_itself(body: FetchRequest, services: Services) -> bool:
    """Whether this file asks for rights, row by row, as long as the session lives."""
    return body.session_epoch != NO_SESSION_EPOCH and not services.fetch.sessions.is_declined


def with_session(request: Request, services: Services) -> Outcome:
    """Answers a request that names a session, or asks for one."""
    return _in_order(request, services, _processed)


def _in_order(request: Request, services: Services, process: _Process) -> Outcome:
    lane = request.peer.order.sessions
    if lane.places:
        return _in_turn(lane.enter(), request, services, process)
    outcome = process(request, services)
    if isinstance(outcome, Awaitable):
        return _holding(lane.enter(), outcome)
    return outcome


async def _holding(place: LanePlace, outcome: Awaitable[Answer]) -> Answer:
    with place:
        return await outcome


async def _in_turn(
    place: LanePlace, request: Request, services: Services, process: _Process
) -> Answer:
    with place:
        await place.come()
        outcome = process(request, services)
        return await outcome if isinstance(outcome, Awaitable) else outcome


def _processed(request: Request, services: Services) -> Outcome:
    body: FetchRequest = request.body
    sessions = services.fetch.sessions
    if body.session_epoch in {OPENS, NO_SESSION_EPOCH}:
        if body.session_id != NO_SESSION:
            sessions.end(body.session_id)
        return _whole(request, services)
    session = continued(request, services)
    if isinstance(session, ErrorCode):
        return encode_fetch_response(request.version, session, [])
    session.begin()
    steps = session.update(body.topics, body.forgotten)
    if _fits_one_turn(steps):
        return _continued(request, services, session)
    return _continued_later(request, services, session, steps)


async def _continued_later(
    request: Request, services: Services, session: FetchSession, steps: Iterator[None]
) -> Answer:
    await work_in_turns(steps)
    outcome = _continued(request, services, session)
    return await outcome if isinstance(outcome, Awaitable) else outcome


def _continued(request: Request, services: Services, session: FetchSession) -> Outcome:
    """Answers a request that its session has been brought up to date with."""
    if not services.fetch.sessions.settle(session):
        return _whole(request, services)
    rights = rights_of(request, services)
    fetched = fetch_in_session(services.fetch, request.body, request.peer, session, rights)
    if isinstance(fetched, Awaitable):
        return _later(request, fetched)
    return _encoded(request, fetched)


def continued(request: Request, services: Services) -> FetchSession | ErrorCode:
    """The session that the request continues, or the code with which it is refused."""
    body: FetchRequest = request.body
    session = services.fetch.sessions.find(body.session_id)
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != body.session_epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.uses_topic_ids != (request.version >= _IDS_FROM):
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    return session


def fetched_nothing(request: Request, services: Services) -> Outcome:
    """The answer to a client that has to pause: no rows; its session is brought up to date, or ends, as by any request."""
    body: FetchRequest = request.body
    if body.session_id == NO_SESSION:
        return _empty(request, ErrorCode.NONE)
    return _in_order(request, services, _nothing)


def _nothing(request: Request, services: Services) -> Outcome:
    body: FetchRequest = request.body
    if body.session_epoch in {OPENS, NO_SESSION_EPOCH}:
        services.fetch.sessions.end(body.session_id)
        return _empty(request, ErrorCode.NONE)
    session = continued(request, services)
    if isinstance(session, ErrorCode):
        return _empty(request, session)
    session.begin()
    steps = session.update(body.topics, body.forgotten)
    if _fits_one_turn(steps):
        return _nothing_of(request, services, session)
    return _nothing_later(request, services, session, steps)


async def _nothing_later(
    request: Request, services: Services, session: FetchSession, steps: Iterator[None]
) -> Answer:
    await work_in_turns(steps)
    return _nothing_of(request, services, session)


def _nothing_of(request: Request, services: Services, session: FetchSession) -> Answer:
    is_left = services.fetch.sessions.settle(session)
    return _empty(request, ErrorCode.NONE, session.id if is_left else NO_SESSION)


def _empty(request: Request, code: ErrorCode, session_id: int = NO_SESSION) -> Answer:
    return encode_fetch_response(request.version, code, [], session_id)


def _fits_one_turn(steps: Iterator[None]) -> bool:
    """Takes as many steps as fit into one turn; returns whether those were all."""
    return sum(1 for _ in islice(steps, ROWS_PER_TURN)) < ROWS_PER_TURN


# --- requests that name all their rows ---


def _whole(request: Request, services: Services) -> Outcome:
    """Answers with the rows that the request names, and opens a session if it asks for one."""
    whole = _Whole.of(request, services)
    topics = fetch(services.fetch, whole.body, request.peer, count_rows(whole.body))
    if isinstance(topics, list) and whole.rows <= ROWS_PER_TURN:
        for _ in whole.open(topics):
            pass
        return whole.answer(topics)
    return _whole_later(whole, topics)


async def _whole_later(
    whole: _Whole, topics: list[TopicFetched] | Awaitable[list[TopicFetched]]
) -> Answer:
    found = await topics if isinstance(topics, Awaitable) else topics
    await work_in_turns(whole.open(found))
    if whole.rows > ROWS_PER_TURN:
        return await for_client(whole.request.peer.host, partial(whole.answer, found))
    return whole.answer(found)


class _Whole:
    """A request that names all its rows."""

    def __init__(
        self, request: Request, services: Services, body: FetchRequest, refused: list[FetchTopic]
    ) -> None:
        self.request = request
        self.body = body
        """The request for the rows that the client may read."""
        self.rows = sum(len(rows) or 1 for _, rows in request.body.topics)
        self._refused = refused
        self._sessions = services.fetch.sessions
        self._topics_by_id = services.fetch.topics_by_id
        self._session_id = NO_SESSION

    @classmethod
    def of(cls, request: Request, services: Services) -> Self:
        """Asks which rows the client may read, if the gate has not."""
        body: FetchRequest = request.body
        rights = rights_of(request, services) if asks_itself(body, services) else None
        if rights is None:
            return cls(request, services, body, [])
        keys = (topic for topic, _ in body.topics)
        denial = denied_topics(AclOperation.READ, keys, rights, services, request.judged)
        if denial is None:
            return cls(request, services, body, [])
        refused: list[FetchTopic] = []
        allowed: list[FetchTopic] = []
        for topic in body.topics:
            (refused if denial.is_refused(topic.topic, 0) else allowed).append(topic)
        return cls(request, services, body._replace(topics=allowed), refused)

    def open(self, topics: list[TopicFetched]) -> Iterator[None]:
        """Opens the session that the request asks for, a row per step; rows that were not read come last."""
        if self.request.body.session_epoch != OPENS or self._sessions.is_declined:
            return
        session = self._sessions.new(
            is_follower=self.body.replica_id != NO_REPLICA,
            uses_topic_ids=self.request.version >= _IDS_FROM,
        )
        unread: list[tuple[str | uuid.UUID, FetchPartition, PartitionFetched]] = []
        for (topic, wanted), (_, fetched) in zip(self.body.topics, topics, strict=True):
            for row, found in zip(wanted, fetched, strict=True):
                if is_read(found.error_code):
                    session.add_answered(topic, row, found, self._name(topic))
                    yield
                else:
                    unread.append((topic, row, found))
        for topic, row, found in (*unread, *self._denied_rows()):
            session.add_answered(topic, row, found, self._name(topic))
            yield
        if self._sessions.add(session):
            self._session_id = session.id

    def _name(self, topic: str | uuid.UUID) -> str | None:
        known = None if isinstance(topic, str) else self._topics_by_id.get(topic)
        return None if known is None else known.name

    def answer(self, topics: list[TopicFetched]) -> Answer:
        """The answer's bytes."""
        denied: list[TopicFetched] = [
            (topic, [_denied(row) for row in rows]) for topic, rows in self._refused
        ]
        version = self.request.version
        return encode_fetch_response(version, ErrorCode.NONE, topics + denied, self._session_id)

    def _denied_rows(self) -> Iterator[tuple[str | uuid.UUID, FetchPartition, PartitionFetched]]:
        for topic, rows in self._refused:
            for row in rows:
                yield topic, row, _denied(row)


def _denied(row: FetchPartition) -> PartitionFetched:
    return PartitionFetched(row.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


# --- answers ---


async def _later(request: Request, fetched: Awaitable[SessionFetched]) -> Answer:
    found = await fetched
    if sum(len(rows) for _, rows in found.topics) > ROWS_PER_TURN:
        return await for_client(request.peer.host, partial(_encoded, request, found))
    return _encoded(request, found)


def _encoded(request: Request, fetched: SessionFetched) -> Answer:
    code, session_id, topics = fetched
    return encode_fetch_response(request.version, code, topics, session_id)
