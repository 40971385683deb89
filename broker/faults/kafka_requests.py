"""Requests of the Kafka port: read for the rules, and refused with the response of their API."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.faults.answer_codes import codes_in
from echoless.broker.faults.denied_right import DeniedRight
from echoless.broker.faults.groups_named import groups_of
from echoless.broker.faults.match import NO_PARTITION, Part, RequestFacts
from echoless.broker.faults.requests import DividedRequest, ReadRequest
from echoless.broker.faults.served import ABOUT_ACLS
from echoless.broker.faults.transactions_named import ids_of, parts_of, results_of
from echoless.broker.handlers import produce
from echoless.broker.handlers.apis import API_BY_KEY
from echoless.broker.handlers.dispatch import framed_later, framed_soon
from echoless.broker.handlers.gate import admit
from echoless.broker.handlers.loaded import LOADED, load_for
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.request_topics import answered_at_once, topics_of
from echoless.broker.handlers.served import Served
from echoless.broker.network.answers import Buffers
from echoless.broker.network.reading import Dispatched
from echoless.broker.network.request import Outcome, Peer, Request
from echoless.broker.records.in_flight import ACKS_NONE
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.fetch_request import FetchRequest
from echoless.protocol.framing import Frame
from echoless.protocol.headers import RequestHeader, read_request_header, skip_tagged_fields
from echoless.protocol.record_batch import Buffer, read_header

if TYPE_CHECKING:
    from echoless.broker.services import Services


_KEY_SIZE: Final = 2
READ_AT_ONCE_BYTES: Final = 16 * 1024
"""Bytes of a request that is read on the event loop, in about a millisecond."""


class _Inside(NamedTuple):
    """A decoded request and its API."""

    served: Served
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
        api = API_BY_KEY.get(header.api_key)
        if api is None or not api.serves(header.api_version):
            return False
        if api.key not in LOADED or not api.can_decode(header.api_version):
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
        api, header = inside.served.api, inside.header
        if isinstance(inside.body, FetchRequest) and inside.body.session_epoch > 0:
            return None  # the port refuses it: it does not name its partitions
        parts = tuple(parts_of(api.name, inside.body, self._parts(api.name, inside.body)))
        facts = RequestFacts(
            api=api.name,
            api_version=header.api_version,
            client_id=header.client_id,
            correlation_id=header.correlation_id,
            parts=parts,
            groups=frozenset(groups_of(api.name, inside.body)),
            transactional_ids=frozenset(ids_of(api.name, inside.body)),
            results=frozenset(results_of(api.name, inside.body)),
            is_answered=_is_answered(inside),
        )
        return ReadRequest(facts, frame, peer, inside)

    def api_of(self, frame: Frame) -> str | None:
        """By the key, with which a request begins."""
        if len(frame) < _KEY_SIZE:
            return None
        api = API_BY_KEY.get(frame[0] << 8 | frame[1])
        return None if api is None else api.name

    def codes_in(self, request: ReadRequest, answer: Buffers) -> frozenset[ErrorCode]:
        """The errors of all of its rows."""
        api, header = _served(request).api, request.inside.header
        return codes_in(api, header.api_version, b"".join(answer))

    def divides(self, request: ReadRequest) -> bool:  # noqa: ARG002 - none is
        return False

    def divide(self, request: ReadRequest, parts: Sequence[Part]) -> DividedRequest:
        raise NotImplementedError

    def refuse(self, request: ReadRequest, parts: Sequence[Part], error: KafkaError) -> Dispatched:
        """Only what is left of the request, if anything, is processed."""
        served = _served(request)
        refusal = self._refusal(request, parts, error)
        if len(parts) == len(request.facts.parts):
            return self._framed(request, served.refuse_whole(refusal, self._services))
        outcome = served.refuse_parts(refusal, self._services, partial(_admit_at_once, served))
        return self._framed(request, outcome)

    def refuse_after(
        self, request: ReadRequest, parts: Sequence[Part], error: KafkaError
    ) -> Dispatched:
        """All of it is processed; the rows of the error take the place of the others."""
        served, refusal = _served(request), self._refusal(request, parts, error)
        outcome = admit(served, refusal.request, self._services)
        return self._framed(request, served.replace_parts(outcome, refusal, self._services))

    def deny(
        self, request: ReadRequest, right: AclOperation, topics: frozenset[str] | None
    ) -> Dispatched:
        """The API's own gate and handler decide what is denied of it, and how."""
        services, served, inside = self._services, _served(request), request.inside
        if services.access is not None or served.api.name not in ABOUT_ACLS:
            access = DeniedRight.instead_of(services.access, right, topics)
            services = replace(services, access=access)
        inner = Request.of(inside.header, inside.body, request.peer)
        outcome = admit(served, inner, services)
        return self._framed(request, outcome)

    def _refusal(self, request: ReadRequest, parts: Sequence[Part], error: KafkaError) -> Refusal:
        inside: _Inside = request.inside
        picked = {(part.topic, part.partition) for part in parts}

        def is_refused(key: object, index: int) -> bool:
            topic = self._name(key)
            return (topic, index) in picked or (topic, NO_PARTITION) in picked

        return Refusal(
            request=Request.of(inside.header, inside.body, request.peer),
            error=error,
            is_refused=is_refused,
        )

    def _framed(self, request: ReadRequest, outcome: Outcome) -> Dispatched:
        api, header, peer = _served(request).api, request.inside.header, request.peer
        if not isinstance(outcome, bytes) and isinstance(outcome, Awaitable):
            return framed_later(api, header.api_version, header.correlation_id, peer, outcome)
        return framed_soon(api, header.api_version, header.correlation_id, peer, outcome)

    # --- what a request is about ---

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


def _admit_at_once(served: Served, request: Request, services: Services) -> Outcome:
    """Handles the parts that no rule refuses; the error need not wait until there is data for them."""
    rest = replace(request, body=answered_at_once(request.body))
    return admit(served, rest, services)


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
    api = API_BY_KEY.get(header.api_key)
    if api is None or not api.serves(header.api_version):
        return None
    served = load_for(api, header.api_version)
    position = header.body_position
    if api.is_flexible(header.api_version):
        position = skip_tagged_fields(frame, position)
    return _Inside(served, header, api.decode_request(header.api_version, frame, position))


def _served(request: ReadRequest) -> Served:
    inside: _Inside = request.inside
    return inside.served


def _is_answered(inside: _Inside) -> bool:
    return getattr(inside.body, "acks", None) != ACKS_NONE
