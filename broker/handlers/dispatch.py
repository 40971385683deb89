"""Dispatch: from a frame on the Kafka port to the handler of its API, and back to a framed answer.

`APIS` (`broker/handlers/apis.py`) lists the APIs that exist; ApiVersions is derived from it. A request that cannot be
decoded, or whose version is unsupported, closes the connection, as in Kafka; the one exception is
ApiVersions itself, which answers an unknown version with version 0 and UNSUPPORTED_VERSION.

A handler is imported in a thread when its API is first used, and so are kio's classes for each version; the request
waits, and so do the later ones of its connection.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.decisions.requests_seen import request_seen
from echoless.broker.handlers import api_versions
from echoless.broker.handlers.apis import API_BY_KEY
from echoless.broker.handlers.gate import admit
from echoless.broker.handlers.loaded import LOADED, load_for
from echoless.broker.handlers.permits import judge_in_turns
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.handlers.throttle_time import with_throttle_time
from echoless.broker.network.answers import Buffers
from echoless.broker.network.order import LanePlace
from echoless.broker.network.promise import Promise
from echoless.broker.network.reading import Dispatched
from echoless.broker.network.request import (
    Answer,
    CloseConnectionError,
    NeedsFrameUntil,
    NoResponse,
    Outcome,
    Peer,
    Request,
    needing_as_much,
)
from echoless.broker.network.turns import ManyRows, for_client, in_thread
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.framing import Frame
from echoless.protocol.headers import (
    CLASSIC_PREFIX,
    FLEXIBLE_PREFIX,
    Prefix,
    RequestHeader,
    read_request_header,
    response_prefix,
    skip_tagged_fields,
)
from echoless.protocol.registry import Api
from echoless.protocol.request_fields import ManyElementsError

if TYPE_CHECKING:
    from echoless.broker.services import Services

_PRODUCE: Final = 0
_CORRELATION_ID: Final = 4
"""Its position: between the API with its version, and the client id."""
_CLIENT_ID: Final = 8
_KNOWN_HEAD_BYTES_MAX: Final = 300
_KnownHead = tuple[
    bytes, bytes, int, int, Callable[[int, Frame, int], Any], Served, Prefix, int, int, str | None
]
"""The bytes that a client repeats in each request of a kind, before and after the correlation id; where they end; the size of a request
that is read at once; and their meaning: reader, API, the form of the answer's prefix, key, version, client id."""
_read_int32: Final = struct.Struct(">i").unpack_from


class KafkaDispatcher:
    """Answers the frames of all connections on the Kafka port."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._decisions = services.produce.decisions

    def __call__(self, frame: Frame, peer: Peer) -> Dispatched:
        """Raises `DecodeError` or `CloseConnectionError` if the connection has to be closed."""
        if self._decisions.wants_requests:
            self._show(frame, peer)
        known: _KnownHead | None = peer.known_head
        if known is not None and not peer.order.imports.places:
            first, rest, end, size_max, read, served, prefix, api_key, version, client_id = known
            if (
                frame[:_CORRELATION_ID] == first
                and frame[_CLIENT_ID:end] == rest
                and len(frame) <= size_max
            ):
                (correlation_id,) = _read_int32(frame, _CORRELATION_ID)
                try:
                    body = read(version, frame, end)
                except ManyElementsError:
                    return self._when_read(served, read_request_header(frame), frame, peer)
                request = Request(api_key, version, correlation_id, client_id, body, peer)
                outcome = admit(served, request, self._services)
                if type(outcome) is bytes:
                    header_size, pack = prefix
                    return (pack(header_size + len(outcome), correlation_id) + outcome,)
                return self._framed(served, request, outcome)
        return self._read_head(frame, peer)

    def _show(self, frame: Frame, peer: Peer) -> None:
        """Shows the request to those who record requests."""
        services, decisions = self._services, self._decisions
        seen = request_seen(
            frame,
            peer,
            API_BY_KEY,
            services.registry.topics_by_id,
            with_records=decisions.wants_records,
        )
        if seen is not None:
            decisions.record_request(seen, services.clock.wall_ms())

    def _read_head(self, frame: Frame, peer: Peer) -> Dispatched:
        """Does the same for a request that begins in another way than the last one."""
        header = read_request_header(frame)
        api = API_BY_KEY.get(header.api_key)
        if api is None:
            raise CloseConnectionError(f"API key {header.api_key} is not served")
        served, version = LOADED.get(header.api_key), header.api_version
        if not api.version_min <= version <= api.version_max:
            return self._unsupported(api, header, peer)
        imports = peer.order.imports
        if served is None or imports.places or not _can_read(api, version):
            return self._when_imported(api, header, frame, peer, imports.enter())
        if len(frame) > api.read_at_once_bytes:
            return self._when_read(served, header, frame, peer)
        try:
            return self._answer(served, header, frame, peer)
        except ManyElementsError:
            return self._when_read(served, header, frame, peer)

    def _unsupported(self, api: Api, header: RequestHeader, peer: Peer) -> Dispatched:
        """Refuses ApiVersions in version 0, which any client can read; raises for all others."""
        version = header.api_version
        if api is not api_versions.API:
            raise CloseConnectionError(
                f"{api.name} version {version} is not served, "
                f"only {api.version_min} to {api.version_max}"
            )
        error = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        refusal = Refusal(request=Request.of(header, None, peer), error=error)
        answer = api_versions.refuse(refusal, self._services)
        return framed_soon(api, 0, header.correlation_id, peer, answer)

    async def refused(self, frame: Frame, peer: Peer, error: KafkaError) -> Buffers | None:
        """The response of the request's own API with this error; nothing is handled.

        Raises `DecodeError` or `CloseConnectionError` if there is none.
        """
        header = read_request_header(frame)
        api, version = API_BY_KEY.get(header.api_key), header.api_version
        if api is None or not api.serves(version):
            raise CloseConnectionError(f"API key {header.api_key} is refused: {error}")
        served = await in_thread(partial(load_for, api, version))
        request = Request.of(header, _body(api, header, frame), peer)
        refusal = Refusal(request=request, error=error)
        answer = _done(served.refuse(refusal, self._services))
        return await framed_later(api, version, header.correlation_id, peer, answer)

    async def _when_imported(
        self, api: Api, header: RequestHeader, frame: Frame, peer: Peer, place: LanePlace
    ) -> Buffers | None:
        with place:
            await place.come()
            served = LOADED.get(api.key)
            if served is None or not _can_read(api, header.api_version):
                served = await in_thread(partial(load_for, api, header.api_version))
            dispatched = await self._read_and_answer(served, header, frame, peer)
        return await dispatched if isinstance(dispatched, Awaitable) else dispatched

    def _when_read(
        self, served: Served, header: RequestHeader, frame: Frame, peer: Peer
    ) -> Awaitable[Buffers | None]:
        """Answers a request that takes long to read; the connection's later ones wait until it is read."""
        place = peer.order.imports.enter()
        answer = self._when_imported(served.api, header, frame, peer, place)
        if served.api is API_BY_KEY[_PRODUCE]:  # its records stay in the frame
            return answer
        return NeedsFrameUntil(answer, place.left)

    async def _read_and_answer(
        self, served: Served, header: RequestHeader, frame: Frame, peer: Peer
    ) -> Dispatched:
        api = served.api
        if len(frame) <= api.read_at_once_bytes:
            try:
                return self._answer(served, header, frame, peer)
            except ManyElementsError:
                pass
        body = await for_client(peer.host, partial(_body, api, header, frame))
        request = Request.of(header, body, peer)
        if self._services.access is not None:
            await judge_in_turns(served.permit, request, self._services)
        return self._framed(served, request, admit(served, request, self._services))

    def _answer(
        self, served: Served, header: RequestHeader, frame: Frame, peer: Peer
    ) -> Dispatched:
        api = served.api
        version, position = header.api_version, header.body_position
        if version >= api.flexible_from:
            position = skip_tagged_fields(frame, position)
        read = api.read_request or api.decode_request
        if api.read_known is not None:
            read = MethodType(api.read_known, peer.seen)  # half the time of calling a `partial`
        if (
            api.read_request is not None
            and position <= _KNOWN_HEAD_BYTES_MAX
            and api is not api_versions.API
        ):
            peer.known_head = (
                bytes(frame[:_CORRELATION_ID]),
                bytes(frame[_CLIENT_ID:position]),
                position,
                api.read_at_once_bytes,
                read,
                served,
                FLEXIBLE_PREFIX if version >= api.flexible_from else CLASSIC_PREFIX,
                header.api_key,
                version,
                header.client_id,
            )
        request = Request.of(header, read(version, frame, position), peer)
        return self._framed(served, request, admit(served, request, self._services))

    def _framed(self, served: Served, request: Request, outcome: Outcome) -> Dispatched:
        """The outcome of a handler as what the connection sends, now or later."""
        api, version, correlation_id = served.api, request.version, request.correlation_id
        if type(outcome) is bytes:
            return framed(api, version, correlation_id, outcome)
        if isinstance(outcome, Promise):
            return outcome.then(partial(framed, api, version, correlation_id))
        if isinstance(outcome, Awaitable):
            answer = framed_later(api, version, correlation_id, request.peer, outcome)
            return needing_as_much(outcome, answer)
        return framed_soon(api, version, correlation_id, request.peer, outcome)


def _body(api: Api, header: RequestHeader, frame: Frame) -> Any:
    """The body of a request, however long it is. Raises `DecodeError`."""
    position = header.body_position
    if api.is_flexible(header.api_version):
        position = skip_tagged_fields(frame, position)
    return api.decode_request(header.api_version, frame, position)


def _can_read(api: Api, version: int) -> bool:
    """Whether what reads requests of this version is imported."""
    return api.read_request is not None or api.can_decode(version)


async def framed_later(
    api: Api, version: int, correlation_id: int, peer: Peer, outcome: Awaitable[Answer]
) -> Buffers | None:
    """Frames an answer to `peer` that is still to come."""
    answer = await outcome
    if isinstance(answer, ManyRows) or (
        isinstance(answer, Mapping) and not api.can_encode(version)
    ):
        return await _encoded_in_thread(api, version, correlation_id, peer, answer)
    return framed(api, version, correlation_id, answer)


def framed_soon(
    api: Api, version: int, correlation_id: int, peer: Peer, answer: Answer
) -> Dispatched:
    """The framed answer to `peer`; later, if it has many rows, or its classes have to be imported first."""
    if isinstance(answer, ManyRows) or (isinstance(answer, dict) and not api.can_encode(version)):
        return _encoded_in_thread(api, version, correlation_id, peer, answer)
    return framed(api, version, correlation_id, answer)


async def _done(answer: Answer) -> Answer:
    return answer


async def _encoded_in_thread(
    api: Api, version: int, correlation_id: int, peer: Peer, answer: Mapping[str, object]
) -> Buffers | None:
    encode = partial(api.encode_response, version, with_throttle_time(answer))
    body = await for_client(peer.host, encode)
    return framed(api, version, correlation_id, body)


def framed(api: Api, version: int, correlation_id: int, answer: Answer) -> Buffers | None:
    """The answer, preceded by its length and header."""
    # ApiVersions keeps response header 0 in all versions, so that any client can read it (KIP-511).
    flexible = version >= api.flexible_from and api is not api_versions.API
    if isinstance(answer, bytes):
        prefix = response_prefix(correlation_id, len(answer), flexible=flexible)
        return (prefix + answer,)
    if isinstance(answer, NoResponse):
        return None
    if isinstance(answer, Mapping):
        body = api.encode_response(version, with_throttle_time(answer))
        return framed(api, version, correlation_id, body)
    size = sum(map(len, answer))
    return (response_prefix(correlation_id, size, flexible=flexible), *answer)
