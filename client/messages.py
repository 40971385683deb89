"""Requests and answers of the Kafka protocol as bytes, for both kinds of connection.

Requests are plain mappings of the newest version's fields (times are integer milliseconds), answers are
kio entities; fields that the chosen version lacks are left out. Importing this file imports
kio: 80 ms.
"""

from __future__ import annotations

import functools
import importlib
import io
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from echoless.client.produce_request import FLEXIBLE_FROM, PartitionBatch, encode_produce_request
from echoless.protocol.entities import entity_builder
from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.framing import Frame
from echoless.protocol.headers import NO_TAGS, skip_tagged_fields
from echoless.protocol.produce_response import VERSION_MAX as PRODUCE_VERSION_MAX
from echoless.protocol.produce_response import ProducedRow, read_produce_response

API_VERSIONS: Final = "api_versions"
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
CLIENT_ID: Final = "echoless"
NOT_KAFKA: Final = "does not speak the Kafka protocol; use the broker's --listen address"
LENGTH: Final = struct.Struct(">i")

_REQUEST_HEADER: Final = struct.Struct(">hhih")
_CLIENT_ID_BYTES: Final = CLIENT_ID.encode()
_PRODUCE_KEY: Final = 0
_OWN_CLASSES: Final = {
    ("describe_transactions", "response"): "echoless.client.described_transactions"
}
"""Modules with classes in the place of kio's, which do not read everything that brokers answer."""
_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_VERSION_MAX: Final = {"produce": PRODUCE_VERSION_MAX, "add_partitions_to_txn": 3}
"""From 13 on, a produce request names topics by id; names are used here. From 4 on, only brokers add partitions."""

ServedVersions = Mapping[int, tuple[int, int]]
"""API key -> lowest and highest version that a broker serves."""


class UnservedApiError(Exception):
    """The broker and this client have no version of the API in common."""


def served_versions(answer: Any) -> ServedVersions | None:
    """The versions in kio's ApiVersions response; None if the broker is too old for that of the request."""
    if answer.error_code.value == ErrorCode.UNSUPPORTED_VERSION:
        return None
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def finalized_levels(answer: Any) -> dict[str, int]:
    """The levels of the cluster's features in kio's ApiVersions response; none if the broker does not know them."""
    if getattr(answer, "finalized_features_epoch", -1) < 0:
        return {}
    return {one.name: one.max_version_level for one in answer.finalized_features}


@functools.lru_cache(maxsize=256)
def _known_versions(api: str) -> tuple[int, frozenset[int]]:
    """The API's key, and the versions that this client knows."""
    known = schema_name_map[api]
    key: int = _schema(api, max(known), "request").__api_key__
    return key, frozenset(one for one in known if one <= _VERSION_MAX.get(api, one))


_NAMES_TOPICS_UP_TO: Final = {"offset_commit": 9, "offset_fetch": 9}
"""The last versions with the names of topics, which a deleted topic has longer than an id."""
_FETCH_NAMES_TOPICS_UP_TO: Final = 12


def newest_version(api: str, served: ServedVersions) -> int:
    """The newest version of `api` (kio's name) that both sides know. Raises `UnservedApiError`."""
    key, known = _known_versions(api)
    least, most = served.get(key, (0, -1))
    most = min(most, _NAMES_TOPICS_UP_TO.get(api, most))
    shared = [version for version in known if least <= version <= most]
    if not shared:
        raise UnservedApiError(f"does not serve {api}")
    return max(shared)


def fetch_version_max(topic_id: Any) -> int | None:
    """Returns the newest version of Fetch for a topic, which later ones name by its id alone; None: any, if it has one.

    A broker that serves those may have topics without ids: until the whole cluster has Kafka 2.8.
    """
    return _FETCH_NAMES_TOPICS_UP_TO if topic_id is None else None


def encode_request(api: str, version: int, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
    """The whole frame, including its length."""
    cls = _schema(api, version, "request")
    is_flexible = cls.__header_schema__.__flexible__
    out = io.BytesIO()
    out.write(_header(cls.__api_key__, version, correlation_id, is_flexible=is_flexible))
    _writer(cls)(out, entity_builder(cls)(fields))
    return LENGTH.pack(out.tell()) + out.getvalue()


def encode_produce(
    version: int, correlation_id: int, topic: str, partition: int, batch: bytes, *, timeout_ms: int
) -> list[bytes]:
    """The whole frame of a Produce request for one partition, in parts."""
    batches = (PartitionBatch(topic, partition, batch),)
    return encode_produce_of(version, correlation_id, batches, timeout_ms=timeout_ms)


def encode_produce_of(
    version: int,
    correlation_id: int,
    batches: Sequence[PartitionBatch],
    *,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[bytes]:
    """The same for several partitions, one batch for each."""
    body = encode_produce_request(
        version, batches, timeout_ms=timeout_ms, transactional_id=transactional_id
    )
    is_flexible = version >= FLEXIBLE_FROM
    header = _header(_PRODUCE_KEY, version, correlation_id, is_flexible=is_flexible)
    size = len(header) + sum(map(len, body))
    return [LENGTH.pack(size), header, *body]


def _header(api_key: int, version: int, correlation_id: int, *, is_flexible: bool) -> bytes:
    fixed = _REQUEST_HEADER.pack(api_key, version, correlation_id, len(_CLIENT_ID_BYTES))
    return fixed + _CLIENT_ID_BYTES + (NO_TAGS if is_flexible else b"")


def decode_answer(api: str, version: int, correlation_id: int, frame: Frame) -> Any:
    """kio's entity from a frame without its length. Raises `DecodeError`."""
    if api == API_VERSIONS and _is_refused_version(frame):
        version = 0
    cls = _schema(api, version, "response")
    position = _body_position(frame, correlation_id, is_flexible=cls.__header_schema__.__flexible__)
    try:
        entity, _ = _reader(cls)(frame, position)
    except (SerialError, ValueError, OverflowError) as error:
        raise DecodeError(f"the answer to {api} v{version} cannot be read: {error}") from error
    return entity


def _is_refused_version(frame: Frame) -> bool:
    """Whether a broker answers an ApiVersions request that is too new for it: it does so in version 0."""
    return frame[LENGTH.size : LENGTH.size + 2] == _UNSUPPORTED_VERSION


def decode_produced(version: int, correlation_id: int, frame: bytes) -> list[ProducedRow]:
    """The rows of a Produce response from a frame without its length. Raises `DecodeError`."""
    is_flexible = version >= FLEXIBLE_FROM
    position = _body_position(frame, correlation_id, is_flexible=is_flexible)
    return read_produce_response(version, frame, position)


def _body_position(frame: Frame, correlation_id: int, *, is_flexible: bool) -> int:
    """The position after the response's header. Raises `DecodeError` if that is another one's."""
    if len(frame) < LENGTH.size or LENGTH.unpack_from(frame)[0] != correlation_id:
        raise DecodeError(NOT_KAFKA)
    return skip_tagged_fields(frame, LENGTH.size) if is_flexible else LENGTH.size


def answer_size(prefix: Frame) -> int:
    """The length of the frame that follows. Raises `DecodeError` if it is impossible."""
    (size,) = LENGTH.unpack(prefix)
    if not LENGTH.size <= size <= ANSWER_BYTES_MAX:
        raise DecodeError(NOT_KAFKA)
    return int(size)


@functools.cache
def _schema(api: str, version: int, kind: str) -> Any:
    """kio's class for a request or response, e.g. `CreateTopicsRequest` of version 7."""
    place = _OWN_CLASSES.get((api, kind), f"kio.schema.{api}.v{version}.{kind}")
    module = importlib.import_module(place)
    return getattr(module, "".join(map(str.capitalize, [*api.split("_"), kind])))


_writer = functools.cache(entity_writer)
_reader = functools.cache(entity_reader)
