"""ApiVersions, read and packed by hand: every connection begins with it, and kio would cost the first one 20 ms.

Layout by version: v1 adds the throttle time; v3 is flexible, and the client names its software; v4 announces
features. v3 could, but its clients reject one whose lowest version is 0 (KAFKA-17011). `tests/protocol/test_first_requests.py` compares
every version with kio. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.framing import Frame
from echoless.protocol.headers import NO_TAGS, skip_tagged_fields, write_unsigned_varint
from echoless.protocol.request_fields import refusing_cut_frames, string

_ROW: Final = struct.Struct(">hhh")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_VERSIONS: Final = struct.Struct(">hh")
_THROTTLE_TIME: Final = _INT32.pack(0)
_FLEXIBLE_FROM: Final = 3
_FEATURES_FROM: Final = 4
_SUPPORTED_TAG, _EPOCH_TAG, _FINALIZED_TAG = range(3)
_UNNAMED: Final = "unnamed"


class ApiVersionsRequest(NamedTuple):
    client_software_name: str = _UNNAMED
    client_software_version: str = _UNNAMED


class ApiVersionsRow(NamedTuple):
    """An API, and the versions to list. Inclusive."""

    api_key: int
    version_min: int
    version_max: int


class Feature(NamedTuple):
    """A feature of the cluster (KIP-584): the versions that are supported, and the one that is in force."""

    name: str
    version_min: int
    version_max: int
    finalized: int


def _decode(version: int, frame: Frame, position: int) -> ApiVersionsRequest:
    if version < _FLEXIBLE_FROM:
        return ApiVersionsRequest()
    software_name, position = string(frame, position, flexible=True)
    software_version, position = string(frame, position, flexible=True)
    skip_tagged_fields(frame, position)
    return ApiVersionsRequest(software_name, software_version)


decode_api_versions_request: Final = refusing_cut_frames("api_versions", _decode)


def encode_api_versions_response(
    version: int,
    error_code: ErrorCode,
    rows: Sequence[ApiVersionsRow],
    features: Sequence[Feature] = (),
    features_epoch: int = 0,
) -> bytes:
    """The body; the features from version 4 on, and how often they have changed."""
    flexible = version >= _FLEXIBLE_FROM
    end = NO_TAGS if flexible else b""
    count = write_unsigned_varint(len(rows) + 1) if flexible else _INT32.pack(len(rows))
    parts = [_INT16.pack(error_code), count]
    for row in rows:
        parts += (_ROW.pack(*row), end)
    if version >= 1:
        parts.append(_THROTTLE_TIME)
    parts.append(
        _packed(features, features_epoch) if features and version >= _FEATURES_FROM else end
    )
    return b"".join(parts)


def _packed(features: Sequence[Feature], epoch: int) -> bytes:
    """The tagged fields of the response; a feature at level 0 is not finalized."""
    supported, finalized = [], []
    finalized_count = sum(one.finalized > 0 for one in features)
    for one in features:
        name = one.name.encode()
        begin = write_unsigned_varint(len(name) + 1) + name
        supported += [begin, _VERSIONS.pack(one.version_min, one.version_max), NO_TAGS]
        if one.finalized:
            finalized += [begin, _VERSIONS.pack(one.finalized, one.finalized), NO_TAGS]
    count = write_unsigned_varint(len(features) + 1)
    fields = {
        _SUPPORTED_TAG: count + b"".join(supported),
        _EPOCH_TAG: _INT64.pack(epoch),
    }
    if finalized:
        fields[_FINALIZED_TAG] = write_unsigned_varint(finalized_count + 1) + b"".join(finalized)
    parts = [write_unsigned_varint(len(fields))]
    for tag, data in fields.items():
        parts += [write_unsigned_varint(tag), write_unsigned_varint(len(data)), data]
    return b"".join(parts)
