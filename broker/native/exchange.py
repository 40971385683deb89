"""One native message and its answer.

Every answer has the `type` and `correlation_id` of its message, and an `error` with code, name,
message and whether to retry; code 0 is success. A message that cannot be decoded, or whose type is
unknown, gets an answer of type `error`, and the connection stays open: its framing is still intact.

`HANDLERS` lists the messages. Each handler takes the message, the peer and the services, and returns
fields, at once or later; a `KafkaError` that it raises becomes the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.native import (
    add_or_verify,
    admin_read,
    await_topic,
    fetch,
    find_transactions,
    hello,
    init_producer_id,
    lease_pid,
    note_tree,
    produce,
    producer_state,
    replica_snapshot,
    sasl,
    topics,
    write_markers,
)
from echoless.broker.native.acknowledged import encode_acknowledged
from echoless.broker.native.failure import failure
from echoless.broker.native.framed import AnswerFields, framed, framed_later, framed_soon
from echoless.broker.native.metered import NOT_COUNTED, metered
from echoless.broker.native.permits import check_permitted
from echoless.broker.native.replica_fetch import ReplicaFetches
from echoless.broker.native.sasl import RefusedLoginError, check_login
from echoless.broker.network.answers import Buffers
from echoless.broker.network.promise import Promise
from echoless.broker.network.reading import Dispatched
from echoless.broker.network.request import NeedsFrameUntil, Peer, needing_as_much
from echoless.broker.network.turns import in_thread
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.framing import Frame
from echoless.protocol.known.native_produce import note_produce, read_known_produce
from echoless.protocol.known.replica_fetch import (
    BEGINNING,
    BEGINNING_SIZE,
    READ_AT_ONCE_BYTES,
    read_usual_replica_fetch,
)
from echoless.protocol.known.replica_session import SESSION_BEGINNING, read_usual_session_fetch
from echoless.protocol.native import messages, replication
from echoless.protocol.native.admin_read import AdminRead
from echoless.protocol.native.codec import locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.find_transactions import FindTransactions
from echoless.protocol.native.replica_session import ReplicaWake, read_replica_fetch
from echoless.protocol.native.transactions import AddOrVerify, WriteMarkers
from echoless.protocol.produce import PartitionProduced

if TYPE_CHECKING:
    from echoless.broker.services import Services

Handler = Callable[[Any, Peer, "Services"], AnswerFields | Awaitable[AnswerFields]]

Handlers = Mapping[str, tuple[Callable[[Fields], Any], Handler]]

HANDLERS: Final[Handlers] = {
    "hello": (messages.Hello.read, hello.handle),
    "sasl": (messages.Sasl.read, sasl.handle),
    "init_producer_id": (messages.InitProducerId.read, init_producer_id.handle),
    "lease_pid": (messages.LeasePid.read, lease_pid.handle),
    "produce": (messages.Produce.read, produce.handle),
    "fetch": (messages.Fetch.read, fetch.handle),
    "producer_state": (messages.ProducerStateRequest.read, producer_state.handle),
    "metadata": (messages.Metadata.read, topics.handle_metadata),
    "create_topic": (messages.CreateTopic.read, topics.handle_create_topic),
    "replica_snapshot": (replication.ReplicaSnapshot.read, replica_snapshot.handle),
    "await_topic": (replication.AwaitTopic.read, await_topic.handle),
    "note_tree": (replication.NoteTree.read, note_tree.handle),
    "find_transactions": (FindTransactions.read, find_transactions.handle),
    "add_or_verify": (AddOrVerify.read, add_or_verify.handle),
    "write_markers": (WriteMarkers.read, write_markers.handle),
    "admin_read": (AdminRead.read, admin_read.handle),
}
"""All handlers except those of replica_fetch and replica_wake, which keep state between messages."""

KAFKA_NAMES: Final = {"create_topic": "create_topics"}
"""Messages that are an API of the Kafka port by another name."""
_UNREADABLE: Final = "error"
"""The type of an answer to something that is not a message, or whose type is unknown."""
_PRODUCE: Final = "produce"
_REPLICA_FETCH: Final = "replica_fetch"
_REPLICA_WAKE: Final = "replica_wake"
_USUAL: Final[Mapping[bytes, Callable[[Frame], tuple[int, Any] | None]]] = {
    BEGINNING: read_usual_replica_fetch,
    SESSION_BEGINNING: read_usual_session_fetch,
}
"""Readers of fetches as followers send them, by the first bytes of these."""
_MANY_ROWS: Final = frozenset({_REPLICA_FETCH})
"""Messages that may have thousands of rows; the fields of all others are small, or records."""
_INT64_MIN: Final = -(2**63)
_UINT64_MAX: Final = 2**64 - 1


class Exchange:
    """Answers messages for one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        fetches = ReplicaFetches()
        self.handlers: Handlers = {
            **HANDLERS,
            _REPLICA_FETCH: (read_replica_fetch, fetches.handle),
            _REPLICA_WAKE: (ReplicaWake.read, fetches.handle_wake),
        }
        self._counters = {name: f"native_{name}" for name in self.handlers}

    def answer(self, frame: Frame, peer: Peer) -> Dispatched:
        """Raises `CloseConnectionError` as acks=0 requires."""
        head: dict[str, Any] = {"type": _UNREADABLE, "correlation_id": None}
        try:
            known = read_known_produce(peer.seen, frame)
            if known is None:
                message = self._read(frame, head, peer)
                if isinstance(message, Fields):
                    return self._answer_large(head, message, peer)
            else:
                head["type"] = _PRODUCE
                head["correlation_id"], message = known
                self._enter(_PRODUCE, peer)
            outcome = self._handle(head["type"], message, peer)
        except RefusedLoginError as error:
            return error.session.end_with(framed_soon(head, error), str(error))
        except KafkaError as error:
            return framed(head, failure(error))
        if isinstance(outcome, PartitionProduced):  # most messages
            return (encode_acknowledged(head["correlation_id"], outcome),)
        if isinstance(outcome, Promise):
            return outcome.then(partial(framed, head))
        if isinstance(outcome, Awaitable):
            return needing_as_much(outcome, framed_later(head, outcome))
        return framed(head, outcome)

    def _read(self, frame: Frame, head: dict[str, Any], peer: Peer) -> Any:
        """The message; or its fields, if it has so many rows that they are read in a thread."""
        read_usual = _USUAL.get(bytes(frame[:BEGINNING_SIZE]))
        if read_usual is not None:
            usual = read_usual(frame)
            if usual is not None:
                head["type"] = _REPLICA_FETCH
                head["correlation_id"], message = usual
                self._enter(_REPLICA_FETCH, peer)
                return message
        fields = read_head(frame, head, self.handlers)
        name = head["type"]
        self._enter(name, peer)
        if name in _MANY_ROWS and len(frame) > READ_AT_ONCE_BYTES:
            return fields
        message = self.handlers[name][0](fields)
        if name == _PRODUCE:
            note_produce(peer.seen, frame, fields, message)
        return message

    def _enter(self, name: str, peer: Peer) -> None:
        """Counts a message. Raises `RefusedLoginError` if its client has to log in first."""
        self._services.metrics.requests[self._counters[name]] += 1
        if peer.login is not None and not peer.login.is_open:
            check_login(peer.login, name)

    def _handle(
        self, name: str, message: Any, peer: Peer
    ) -> AnswerFields | Awaitable[AnswerFields]:
        services, handle = self._services, self.handlers[name][1]
        if services.access is not None:
            check_permitted(services, peer, name, message)
        if services.quotas.limits is not None and name not in NOT_COUNTED:
            return metered(message, peer, services, handle)
        return handle(message, peer, services)

    def _answer_large(self, head: Mapping[str, Any], fields: Fields, peer: Peer) -> NeedsFrameUntil:
        """Reads and encodes thousands of rows in a thread; a wait in between needs no frame."""
        read, handle = self.handlers[head["type"]]
        message = asyncio.ensure_future(in_thread(partial(read, fields)))
        message.add_done_callback(_look_at)  # the client may have gone before it is awaited
        return NeedsFrameUntil(self._answer_later(head, message, handle, peer), message)

    async def _answer_later(
        self, head: Mapping[str, Any], read: asyncio.Future[Any], handle: Handler, peer: Peer
    ) -> Buffers | None:
        try:
            message = await read
            if self._services.access is not None:
                check_permitted(self._services, peer, head["type"], message)
            outcome = handle(message, peer, self._services)
            answer = await outcome if isinstance(outcome, Awaitable) else outcome
        except KafkaError as error:
            return framed(head, failure(error))
        return await in_thread(partial(framed, head, answer))


def _look_at(read: asyncio.Future[Any]) -> None:
    if not read.cancelled():
        read.exception()


def read_head(frame: Frame, head: dict[str, Any], handlers: Collection[str]) -> Fields:
    """Fills `head` as far as it can be read, so that even an error answer is matched to its message.

    Raises `KafkaError`: INVALID_REQUEST, and UNSUPPORTED_VERSION for an unknown type.
    """
    try:
        encoded = locate_fields(frame)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    fields = Fields("message", encoded)
    if "correlation_id" in fields:
        head["correlation_id"] = fields.integer(
            "correlation_id", least=_INT64_MIN, most=_UINT64_MAX
        )
    message_type = fields.text("type")
    if message_type not in handlers:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"messages of type {message_type!r} are not known; these are: {', '.join(handlers)}",
        )
    head["type"] = message_type
    return Fields(message_type, encoded)
