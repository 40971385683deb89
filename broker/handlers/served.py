"""An API as the Kafka port serves it: its versions, its handler, and how it is refused.

Each file of an API defines one as `SERVED`; `loaded.py` finds it there.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers.merged_responses import Rows, merge
from echoless.broker.handlers.permits import Permit, closed
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.request_topics import listed_topics_field, names_many, without
from echoless.broker.handlers.throttle_time import with_throttle_time
from echoless.broker.network.request import Answer, NoResponse, Outcome, Request, needing_as_much
from echoless.broker.network.turns import ROWS_PER_TURN, for_client
from echoless.protocol.registry import Api

if TYPE_CHECKING:
    from echoless.broker.services import Services

Handler = Callable[[Request, "Services"], Outcome]
Refuse = Callable[[Refusal, "Services"], Answer]


_ORDERED: Final = frozenset({"produce", "offset_commit", "offset_delete"})
"""APIs whose later requests of the connection must not be handled first."""


class Names(enum.Enum):
    """The things that requests of an API name, by which they can be distinguished."""

    NOTHING = enum.auto()
    TOPICS = enum.auto()
    PARTITIONS = enum.auto()
    """Topics and partitions."""


class Served(NamedTuple):
    """One API."""

    api: Api
    handle: Handler
    refuse: Refuse
    """Builds the response that carries an error."""
    names: Names = Names.NOTHING
    rows: Rows | None = None
    """The position of the rows in the response; None: a request cannot be refused in part."""
    permit: Permit = closed
    """The rights that its requests need, if the broker has an authorizer; by default no one may send them."""

    def refuse_whole(self, refusal: Refusal, services: Services) -> Outcome:
        """Answers all of the request with the error; in a thread, if it names much."""
        request = refusal.request
        if request.judged is not None or names_many(request.body, ROWS_PER_TURN):
            return self._refused_in_thread(refusal, services)
        return self.refuse(refusal, services)

    async def _refused_in_thread(self, refusal: Refusal, services: Services) -> Answer:
        version = refusal.request.version
        work = lambda: self.encode(version, self.refuse(refusal, services))  # noqa: E731
        return await for_client(refusal.request.peer.host, work)

    def refuse_parts(self, refusal: Refusal, services: Services, handle: Handler) -> Outcome:
        """Answers the refused parts with the error and has the others handled.

        The whole request is refused without `rows`, and if it is about all partitions without naming
        them: those that are refused cannot be taken out of it.
        """
        request = refusal.request
        field = listed_topics_field(request.body)
        if self.rows is None or (field is None and self.names is Names.PARTITIONS):
            return self.refuse_whole(refusal, services)
        judged = request.judged
        if (
            judged is not None
            and judged.rest is not None
            and refusal.is_refused == judged.is_refused
        ):
            rest = judged.rest
        elif judged is not None and self.api.name not in _ORDERED:
            return self._rest_in_thread(refusal, services, handle)
        else:
            rest = without(request.body, refusal.is_refused)
        return self._handle_rest(rest, refusal, services, handle)

    async def _rest_in_thread(
        self, refusal: Refusal, services: Services, handle: Handler
    ) -> Answer:
        """The same for a long request, which need not be handled before the next one of its connection."""
        request = refusal.request
        work = partial(without, request.body, refusal.is_refused)
        rest = await for_client(request.peer.host, work)
        outcome = self._handle_rest(rest, refusal, services, handle)
        return await outcome if isinstance(outcome, Awaitable) else outcome

    def _handle_rest(
        self, rest: Any, refusal: Refusal, services: Services, handle: Handler
    ) -> Outcome:
        field = listed_topics_field(refusal.request.body)
        if field is not None and not getattr(rest, field):
            return self.refuse_whole(refusal, services)  # an empty list may mean all topics
        outcome = handle(replace(refusal.request, body=rest), services)
        return self._merged(outcome, refusal, services)

    def replace_parts(self, outcome: Outcome, refusal: Refusal, services: Services) -> Outcome:
        """Puts the error in place of what the handler has answered for the refused parts."""
        return self._merged(outcome, refusal, services)

    def _merged(self, outcome: Outcome, refusal: Refusal, services: Services) -> Outcome:
        if not isinstance(outcome, bytes) and isinstance(outcome, Awaitable):
            return needing_as_much(outcome, self._merged_later(outcome, refusal, services))
        if self.rows is not None and refusal.request.judged is not None:
            work = partial(self._refuse_and_merge, outcome, refusal, services)
            return for_client(refusal.request.peer.host, work)
        refused = self.refuse(refusal, services)
        if self.rows is None:
            return refused
        merge = partial(self._merge, refusal.request.version, outcome, refused)
        return for_client(refusal.request.peer.host, merge)

    async def _merged_later(
        self, outcome: Awaitable[Answer], refusal: Refusal, services: Services
    ) -> Answer:
        answer = await outcome
        if self.rows is not None and refusal.request.judged is not None:
            return await for_client(
                refusal.request.peer.host,
                partial(self._refuse_and_merge, answer, refusal, services),
            )
        refused = self.refuse(refusal, services)
        if self.rows is None:
            return refused
        merge = partial(self._merge, refusal.request.version, answer, refused)
        return await for_client(refusal.request.peer.host, merge)

    def _refuse_and_merge(self, answer: Answer, refusal: Refusal, services: Services) -> Answer:
        return self._merge(refusal.request.version, answer, self.refuse(refusal, services))

    def _merge(self, version: int, answer: Answer, refused: Answer) -> Answer:
        """The rows of both: kio reads and writes all of them, which takes a while."""
        assert self.rows is not None
        answered, error = self.encode(version, answer), self.encode(version, refused)
        return merge(self.api, self.rows, version, answered, error)

    def encode(self, version: int, answer: Answer) -> bytes:
        """The body of the response."""
        assert not isinstance(answer, NoResponse)
        if isinstance(answer, bytes):
            return answer
        if isinstance(answer, Mapping):
            return self.api.encode_response(version, with_throttle_time(answer))
        return b"".join(answer)
