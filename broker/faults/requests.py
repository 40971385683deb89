"""The faults' view of a port: reading what a request is about, and refusing it properly.

`kafka_requests.py` and `native_requests.py` implement it. A request is read a second time here, so
that a broker without rules pays nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, Protocol

from echoless.broker.faults.match import Part, RequestFacts
from echoless.broker.network.answers import Buffers
from echoless.broker.network.reading import Dispatch, Dispatched
from echoless.broker.network.request import Peer
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.framing import Frame

__all__ = ["Dispatch", "ReadRequest", "Requests", "finished"]


class ReadRequest(NamedTuple):
    """A request that could be read."""

    facts: RequestFacts
    frame: Frame
    peer: Peer
    inside: Any
    """The port's own data for answering it."""


class DividedRequest(Protocol):
    """A request of which a rule has picked some parts; the rest is processed already."""

    def process(self) -> Dispatched:
        """Processes what is picked, and answers all of it."""

    def refuse(self, error: KafkaError, *, is_processed: bool) -> Dispatched:
        """Answers with the error for what is picked, which is processed before, or not at all."""


class Requests(Protocol):
    """The requests of one port."""

    def api_of(self, frame: Frame) -> str | None:
        """The API of a request, at a glance; None if that takes reading it."""

    def codes_in(self, request: ReadRequest, answer: Buffers) -> frozenset[ErrorCode]:
        """The errors in the port's own answer; success is none."""

    def divides(self, request: ReadRequest) -> bool:
        """Whether a rule about some parts of it leaves the others alone, whatever its action."""

    def divide(self, request: ReadRequest, parts: Sequence[Part]) -> DividedRequest:
        """Divides it, and has the rest processed."""

    def takes_long(self, frame: Frame) -> bool:
        """Whether `read` would hold the event loop: it is called in a thread then."""

    def read(self, frame: Frame, peer: Peer) -> ReadRequest | None:
        """The request, or None if it cannot be read or is not served: the port itself reports that."""

    def refuse(self, request: ReadRequest, parts: Sequence[Part], error: KafkaError) -> Dispatched:
        """Answers these parts with the error and does not process them; processes the others.

        Raises `CloseConnectionError` if the client expects no answer.
        """

    def refuse_after(
        self, request: ReadRequest, parts: Sequence[Part], error: KafkaError
    ) -> Dispatched:
        """Processes all of it, and answers these parts with the error instead of their result."""

    def deny(
        self, request: ReadRequest, right: AclOperation, topics: frozenset[str] | None
    ) -> Dispatched:
        """Answers as if the client did not have this right: to these topics, or to anything.

        Raises `CloseConnectionError` if the client expects no answer.
        """


async def finished(dispatched: Dispatched) -> Buffers | None:
    """The framed answer, now or later."""
    if isinstance(dispatched, Awaitable):
        return await dispatched
    return dispatched
