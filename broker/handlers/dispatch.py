"""Dispatch: from a frame on the Kafka port to the handler of its API, and back to a framed answer.

`HANDLERS` lists the APIs that exist; ApiVersions is derived from it. A request that cannot be
decoded, or whose version is unsupported, closes the connection, as in Kafka; the one exception is
ApiVersions itself, which answers an unknown version with version 0 and UNSUPPORTED_VERSION.

kio's classes are imported in a thread when a version is first used; its request waits, and so do the
later ones of its connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_producers,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_handshake,
)
from broker.network.connection import Buffers, Dispatched
from broker.network.request import (
    Answer,
    CloseConnectionError,
    NoResponse,
    Outcome,
    Peer,
    Request,
    needing_as_much,
)
from broker.network.turns import ManyRows, in_thread
from protocol.framing import Frame
from protocol.headers import (
    RequestHeader,
    read_request_header,
    response_prefix,
    skip_tagged_fields,
)
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.services import Services

Handler = Callable[[Request, "Services"], Outcome]

_MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_fetch,
    find_coordinator,
    sasl_handshake,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_configs,
    alter_configs,
    create_partitions,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    describe_cluster,
    describe_producers,
)
_API_VERSIONS: Final = api_versions.ApiVersions(
    [api_versions.API, *(module.API for module in _MODULES)]
)
HANDLERS: Final[Mapping[int, tuple[Api, Handler]]] = {
    module.API.key: (module.API, module.handle) for module in _MODULES
} | {api_versions.API.key: (api_versions.API, _API_VERSIONS.handle)}


class KafkaDispatcher:
    """Answers the frames of all connections on the Kafka port."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, frame: Frame, peer: Peer) -> Dispatched:
        """Raises `DecodeError` or `CloseConnectionError` if the connection has to be closed."""
        header = read_request_header(frame)
        api, handle = self._route(header)
        if api is api_versions.API and not api.serves(header.api_version):
            return framed_soon(api, header, 0, _API_VERSIONS.unsupported_version())
        if peer.importing or not api.can_decode(header.api_version):
            peer.importing += 1
            return self._when_imported(api, handle, header, frame, peer)
        return self._answer(api, handle, header, frame, peer)

    async def _when_imported(
        self, api: Api, handle: Handler, header: RequestHeader, frame: Frame, peer: Peer
    ) -> Buffers | None:
        await in_thread(partial(api.prepare_decoding, header.api_version))
        peer.importing -= 1
        dispatched = self._answer(api, handle, header, frame, peer)
        return await dispatched if isinstance(dispatched, Awaitable) else dispatched

    def _answer(
        self, api: Api, handle: Handler, header: RequestHeader, frame: Frame, peer: Peer
    ) -> Dispatched:
        position = header.body_position
        if api.is_flexible(header.api_version):
            position = skip_tagged_fields(frame, position)
        body = api.decode_request(header.api_version, frame, position)
        self._services.metrics.requests[api.name] += 1
        outcome = handle(Request(header, body, peer), self._services)
        if not isinstance(outcome, bytes) and isinstance(outcome, Awaitable):
            return needing_as_much(outcome, framed_later(api, header, outcome))
        return framed_soon(api, header, header.api_version, outcome)

    def _route(self, header: RequestHeader) -> tuple[Api, Handler]:
        found = HANDLERS.get(header.api_key)
        if found is None:
            raise CloseConnectionError(f"API key {header.api_key} is not served")
        api = found[0]
        if not api.serves(header.api_version) and api is not api_versions.API:
            raise CloseConnectionError(
                f"{api.name} version {header.api_version} is not served, "
                f"only {api.version_min} to {api.version_max}"
            )
        return found


async def framed_later(
    api: Api, header: RequestHeader, outcome: Awaitable[Answer]
) -> Buffers | None:
    """Frames an answer that is still to come."""
    answer = await outcome
    version = header.api_version
    if isinstance(answer, ManyRows) or (
        isinstance(answer, Mapping) and not api.can_encode(version)
    ):
        answer = await in_thread(partial(api.encode_response, version, answer))
    return framed(api, header, version, answer)


def framed_soon(api: Api, header: RequestHeader, version: int, answer: Answer) -> Dispatched:
    """The framed answer; later, if its classes have to be imported first."""
    if isinstance(answer, dict) and not api.can_encode(version):
        return _encoded_in_thread(api, header, version, answer)
    return framed(api, header, version, answer)


async def _encoded_in_thread(
    api: Api, header: RequestHeader, version: int, answer: Mapping[str, object]
) -> Buffers | None:
    body = await in_thread(partial(api.encode_response, version, answer))
    return framed(api, header, version, body)


def framed(api: Api, header: RequestHeader, version: int, answer: Answer) -> Buffers | None:
    """The answer, preceded by its length and header."""
    # ApiVersions keeps response header 0 in all versions, so that any client can read it (KIP-511).
    flexible = api.is_flexible(version) and api is not api_versions.API
    if isinstance(answer, bytes):
        prefix = response_prefix(header.correlation_id, len(answer), flexible=flexible)
        return (prefix + answer,)
    if isinstance(answer, NoResponse):
        return None
    if isinstance(answer, Mapping):
        return framed(api, header, version, api.encode_response(version, answer))
    size = sum(map(len, answer))
    return (response_prefix(header.correlation_id, size, flexible=flexible), *answer)
