"""Messages of the native port: read for the rules, and refused with the `error` of their answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.faults.denied_right import DeniedRight
from echoless.broker.faults.divided import DividedMessage
from echoless.broker.faults.kafka_requests import with_batch
from echoless.broker.faults.match import NO_VERSION, Part, RequestFacts
from echoless.broker.faults.requests import Dispatch, DividedRequest, ReadRequest, finished
from echoless.broker.faults.served import BETWEEN_BROKERS
from echoless.broker.faults.transactions_named import parts_between_brokers
from echoless.broker.native.exchange import HANDLERS, KAFKA_NAMES, Exchange, read_head
from echoless.broker.native.failure import failure
from echoless.broker.native.framed import framed
from echoless.broker.network.answers import Buffers
from echoless.broker.network.reading import Dispatched
from echoless.broker.network.request import CloseConnectionError, Peer
from echoless.broker.records.in_flight import ACKS_NONE
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.framing import LENGTH_SIZE, Frame
from echoless.protocol.native import messages, replica_session, replication
from echoless.protocol.native.codec import decode_message
from echoless.protocol.native.transactions import AddOrVerify, WriteMarkers

if TYPE_CHECKING:
    from echoless.broker.services import Services

_READERS: Final = {
    "replica_fetch": replica_session.read_replica_fetch,
    "replica_wake": replica_session.ReplicaWake.read,
    **{name: read for name, (read, _) in HANDLERS.items()},
}
_NO_CORRELATION: Final = 0
_SIZE_OF_TEXT: Final = 0x1F
_TYPE: Final = re.compile(rb"[\x81-\x8f]\xa4type([\xa1-\xbf])(.{0,31})", re.DOTALL)
"""The head of a small map whose first field is `type`, with a short text."""


class _Inside(NamedTuple):
    """A decoded message."""

    head: dict[str, Any]
    message: Any


class NativeRequests:
    """`Requests` for one broker. `process` is the port's own dispatcher."""

    def __init__(self, services: Services, process: Dispatch) -> None:
        self._services = services
        self._process = process

    def takes_long(self, frame: Frame) -> bool:
        """Whether the message is large: its records are built when it is read."""
        return len(frame) > messages.BUILT_AT_ONCE_BYTES

    def read(self, frame: Frame, peer: Peer) -> ReadRequest | None:
        """None for what the dispatcher will refuse."""
        head: dict[str, Any] = {"type": "error", "correlation_id": None}
        try:
            fields = read_head(frame, head, _READERS)
            message = _READERS[head["type"]](fields)
            if isinstance(message, messages.Produce):
                message = message.built()
        except KafkaError:
            return None
        name = head["type"]
        parts = tuple(self._parts(message))
        facts = RequestFacts(
            api=KAFKA_NAMES.get(name, name),
            api_version=NO_VERSION,
            client_id=peer.client_id,
            correlation_id=head["correlation_id"] or _NO_CORRELATION,
            parts=parts,
            transactional_ids=frozenset(
                [one.transactional_id for one in parts if one.transactional_id]
            ),
            results=frozenset([one.result for one in parts if one.result]),
            is_answered=getattr(message, "acks", None) != ACKS_NONE,
            is_between_brokers=name in BETWEEN_BROKERS,
            from_broker=getattr(message, "broker_id", None),
        )
        return ReadRequest(facts, frame, peer, _Inside(head, message))

    def api_of(self, frame: Frame) -> str | None:
        """By its type, if that is its first field: our own clients and brokers begin with it."""
        found = _TYPE.match(frame)
        if found is None or (size := found[1][0] & _SIZE_OF_TEXT) != len(found[2][:size]):
            return None
        name = found[2][:size].decode(errors="replace")
        return KAFKA_NAMES.get(name, name)

    def codes_in(self, request: ReadRequest, answer: Buffers) -> frozenset[ErrorCode]:  # noqa: ARG002 - the answer says it
        """The error of the message."""
        fields = decode_message(b"".join(answer)[LENGTH_SIZE:])
        code = fields.get("error", {}).get("code", ErrorCode.NONE)
        return frozenset({ErrorCode(code)}) - {ErrorCode.NONE}

    def divides(self, request: ReadRequest) -> bool:
        """Messages about many transactions are."""
        inside: _Inside = request.inside
        return isinstance(inside.message, AddOrVerify | WriteMarkers)

    def divide(self, request: ReadRequest, parts: Sequence[Part]) -> DividedRequest:
        """Processes the rest by the port's own dispatcher."""
        inside: _Inside = request.inside
        process = lambda frame: self._process(frame, request.peer)  # noqa: E731
        return DividedMessage(inside.head, inside.message, parts, process)

    def refuse(self, request: ReadRequest, _parts: Sequence[Part], error: KafkaError) -> Dispatched:
        """A message has one error for all of it."""
        inside: _Inside = request.inside
        _check_answered(request, error)
        return framed(inside.head, failure(error))

    def refuse_after(
        self, request: ReadRequest, _parts: Sequence[Part], error: KafkaError
    ) -> Dispatched:
        """The answer is the error alone."""
        inside: _Inside = request.inside
        answer = self._process(request.frame, request.peer)
        _check_answered(request, error)
        return _in_place_of(answer, inside, error)

    def deny(
        self, request: ReadRequest, right: AclOperation, topics: frozenset[str] | None
    ) -> Dispatched:
        """The port's own gate decides what is denied of it."""
        access = DeniedRight.instead_of(self._services.access, right, topics)
        exchange = Exchange(replace(self._services, access=access))
        return exchange.answer(request.frame, request.peer)

    def _parts(self, message: Any) -> Iterator[Part]:
        match message:
            case messages.Produce():
                yield with_batch(message.topic, message.partition, message.batch)
            case messages.Metadata():
                yield from map(Part, message.topics or self._services.registry.topics)
            case replication.ReplicaFetch() | replica_session.SessionFetch() | messages.LeasePid():
                for wanted in message.partitions:
                    yield Part(wanted.topic, wanted.partition)
            case AddOrVerify() | WriteMarkers():
                yield from parts_between_brokers(message)
            case messages.CreateTopic() | replication.AwaitTopic():
                yield Part(message.topic)
            case messages.Fetch() | messages.ProducerStateRequest() | replication.ReplicaSnapshot():
                yield Part(message.topic, message.partition)


async def _in_place_of(answer: Dispatched, inside: _Inside, error: KafkaError) -> Buffers | None:
    await finished(answer)
    return framed(inside.head, failure(error))


def _check_answered(request: ReadRequest, error: KafkaError) -> None:
    """acks=0: no error can be returned, so the connection ends, as after any error."""
    if not request.facts.is_answered:
        raise CloseConnectionError(str(error))
