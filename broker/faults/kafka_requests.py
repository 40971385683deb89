"""Requests of the Kafka port: read for the rules, and refused with the response of their API."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.handlers.refusals import BUILDERS, Refusal
from broker.faults.match import NO_PARTITION, Part, RequestFacts
from broker.handlers.merged_responses import merge
from broker.handlers.request_topics import topics_of, without
from broker.faults.requests import ReadRequest
from broker.handlers import produce
from broker.handlers.dispatch import HANDLERS, Handler, framed_later, framed_soon
from broker.network.connection import Dispatched
from broker.network.request import Answer, CloseConnectionError, NoResponse, Outcome, Peer, Request
from broker.records.produce import ACKS_NONE
from protocol.errors import DecodeError, KafkaError
from protocol.framing import Frame
from protocol.headers import RequestHeader, read_request_header, skip_tagged_fields
from protocol.record_batch import Buffer, read_header
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.services import Services


READ_AT_ONCE_BYTES: Final = 16 * 1024
"""How large a request may be to be read on the event loop, in about a millisecond."""


class _Inside(NamedTuple):
    """A decoded request and its handler."""

    api: Api
    handle: Handler
    header: RequestHeader
    body: Any


class KafkaRequests:
    """`Requests` for one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def takes_long(self, frame: Frame) -> bool:
        """Whether the request is large, or the first of its kind; records are not decoded."""
        try:
            header = read_request_header(frame)
        except DecodeError:
            return False
        found = HANDLERS.get(header.api_key)
        if found is None or not found[0].serves(header.api_version):
            return False
        api = found[0]
        if not api.can_decode(header.api_version):
            return True
        return api is not produce.API and len(frame) > READ_AT_ONCE_BYTES

    def read(self, frame: Frame, peer: Peer) -> ReadRequest | None:
        """None for what the dispatcher will refuse."""
        try:
            inside = _read(frame)
        except DecodeError:
            return None
        if inside is None:
            return None
        api, header = inside.api, inside.header
        parts = tuple(self._parts(api.name, inside.body))
        facts = RequestFacts(
            api=api.name,
            api_version=header.api_version,
            client_id=header.client_id,
            correlation_id=header.correlation_id,
            parts=parts,
            is_answered=_is_answered(inside),
        )
        return ReadRequest(facts, frame, peer, inside)

    def refuse(self, request: ReadRequest, parts: Sequence[Part], error: KafkaError) -> Dispatched:
        """Only what is left of the request, if anything, is processed."""
        inside: _Inside = request.inside
        check_answered(request, error)
        refused = self._refused(request, parts, error)
        if len(parts) == len(request.facts.parts):
            return self._framed(inside, refused)
        rest = without(inside.body, lambda key, index: self._is_in(parts, key, index))
        return self._merged(inside, self._handle(request, rest), refused)

    def refuse_after(
        self, request: ReadRequest, parts: Sequence[Part], error: KafkaError
    ) -> Dispatched:
        """All of it is processed; the rows of the error take the place of the others."""
        inside: _Inside = request.inside
        outcome = self._handle(request, inside.body)
        check_answered(request, error)
        return self._merged(inside, outcome, self._refused(request, parts, error))

    def _handle(self, request: ReadRequest, body: Any) -> Outcome:
        inside: _Inside = request.inside
        self._services.metrics.requests[inside.api.name] += 1
        return inside.handle(Request(inside.header, body, request.peer), self._services)

    def _refused(self, request: ReadRequest, parts: Sequence[Part], error: KafkaError) -> Answer:
        inside: _Inside = request.inside
        refusal = Refusal(
            request=Request(inside.header, inside.body, request.peer),
            error=error,
            is_refused=lambda key, index: self._is_in(parts, key, index),
            topics=list(dict.fromkeys(part.topic for part in parts)),
        )
        return BUILDERS[inside.api.name](refusal, self._services)

    def _framed(self, inside: _Inside, answer: Answer) -> Dispatched:
        return framed_soon(inside.api, inside.header, inside.header.api_version, answer)

    def _merged(self, inside: _Inside, outcome: Outcome, refused: Answer) -> Dispatched:
        if not isinstance(outcome, bytes) and isinstance(outcome, Awaitable):
            later = self._merge_later(inside, outcome, refused)
            return framed_later(inside.api, inside.header, later)
        return self._framed(inside, _merge(inside, outcome, refused))

    async def _merge_later(
        self, inside: _Inside, outcome: Awaitable[Answer], refused: Answer
    ) -> Answer:
        return _merge(inside, await outcome, refused)

    # --- what a request is about ---

    def _is_in(self, parts: Sequence[Part], key: object, index: int) -> bool:
        topic = self._name(key)
        return any(
            part.topic == topic and part.partition in {index, NO_PARTITION} for part in parts
        )

    def _name(self, key: object) -> str:
        """Newer versions name topics by id."""
        if isinstance(key, str):
            return key
        topic = self._services.registry.topics_by_id.get(key)  # type: ignore[call-overload]
        return "" if topic is None else str(topic.name)

    def _parts(self, api: str, body: Any) -> Iterator[Part]:
        if api == "metadata" and not body.topics:
            yield from map(Part, self._services.registry.topics)
            return
        for key, indexes, records in topics_of(body):
            name = self._name(key)
            if not indexes:
                yield Part(name)
            for index, batch in zip(indexes, records, strict=True):
                yield with_batch(name, index, batch)


def with_batch(topic: str, partition: int, batch: Buffer | None) -> Part:
    """A part and what its batch says, as far as there is one that can be read."""
    if batch is None:
        return Part(topic, partition)
    try:
        header = read_header(batch)
    except DecodeError:
        return Part(topic, partition)
    return Part(
        topic,
        partition,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        has_batch=True,
    )


def _read(frame: Frame) -> _Inside | None:
    header = read_request_header(frame)
    found = HANDLERS.get(header.api_key)
    if found is None or not found[0].serves(header.api_version):
        return None
    api, handle = found
    api.prepare_decoding(header.api_version)
    position = header.body_position
    if api.is_flexible(header.api_version):
        position = skip_tagged_fields(frame, position)
    return _Inside(api, handle, header, api.decode_request(header.api_version, frame, position))


def _is_answered(inside: _Inside) -> bool:
    return getattr(inside.body, "acks", None) != ACKS_NONE


def check_answered(request: ReadRequest, error: KafkaError) -> None:
    """acks=0: nobody can be told, so the connection ends, as after any error."""
    if not request.facts.is_answered:
        raise CloseConnectionError(str(error))


def _merge(inside: _Inside, answer: Answer, refused: Answer) -> Answer:
    version = inside.header.api_version
    assert not isinstance(answer, NoResponse)
    return merge(inside.api, version, _body(inside, answer), _body(inside, refused))


def _body(inside: _Inside, answer: Answer) -> bytes:
    assert not isinstance(answer, NoResponse)
    if isinstance(answer, bytes):
        return answer
    if isinstance(answer, Mapping):
        return inside.api.encode_response(inside.header.api_version, answer)
    return b"".join(answer)
