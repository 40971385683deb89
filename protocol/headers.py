"""Request and response headers of the Kafka protocol, read and written by hand: they are tiny and hot.

Request header v1: api key i16, api version i16, correlation id i32, client id nullable string;
v2 (flexible APIs) adds tagged fields. Response header v0: correlation id; v1 adds tagged fields.
ApiVersions always answers with v0 (KIP-511), so that any client can read the downgrade.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame

_FIXED: Final = struct.Struct(">hhih")
_FIXED_SIZE: Final = _FIXED.size
Prefix = tuple[int, Callable[[int, int], bytes]]
"""The size of a response header, and what packs the frame length and that header, from the length and the correlation id."""
CLASSIC_PREFIX: Final[Prefix] = (4, struct.Struct(">ii").pack)
FLEXIBLE_PREFIX: Final[Prefix] = (5, struct.Struct(">iix").pack)
"""Without tagged fields."""
NO_TAGS: Final = b"\x00"
_TAGGED_FIELDS_MAX: Final = 64
_ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Position after the client id: the body, or the header's tagged fields in a flexible version.
    """


def read_request_header(frame: Frame) -> RequestHeader:
    """Reads all but the tagged fields, whose presence depends on the API.

    Raises `DecodeError` when the frame is too short or the client id is not UTF-8.
    """
    try:
        api_key, api_version, correlation_id, size = _FIXED.unpack_from(frame)
    except struct.error as error:
        raise DecodeError(f"a request of {len(frame)} bytes has no whole header") from error
    end = _FIXED_SIZE if size < 0 else _FIXED_SIZE + size
    if size < -1 or end > len(frame):
        raise DecodeError(f"client id of {size} bytes in a request of {len(frame)} bytes")
    try:
        client_id = None if size < 0 else str(frame[_FIXED_SIZE:end], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("the client id is not UTF-8") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, end)


def skip_tagged_fields(frame: Frame, position: int) -> int:
    """The position after the tagged fields that start at `position`."""
    if position < len(frame) and frame[position] == 0:
        return position + 1
    count, position = read_unsigned_varint(frame, position)
    if count > _TAGGED_FIELDS_MAX:
        raise DecodeError(f"{count} tagged fields; at most {_TAGGED_FIELDS_MAX} are read")
    for _ in range(count):
        _, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        position += size
    if position > len(frame):
        raise DecodeError("tagged fields reach past the end of the request")
    return position


def read_unsigned_varint(frame: Frame, position: int) -> tuple[int, int]:
    """`(value, position after it)` of an unsigned varint of at most five bytes."""
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(frame):
            raise DecodeError("a varint reaches past the end of the request")
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("a varint of more than five bytes")


def write_unsigned_varint(value: int) -> bytes:
    """The bytes of `value` (>= 0) as an unsigned varint."""
    if value < 0x80:  # nearly every size takes one byte or two
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def response_prefix(correlation_id: int, body_size: int, *, flexible: bool) -> bytes:
    """Frame length and response header (v1 where `flexible`, else v0) of a body of that size."""
    header_size, pack = FLEXIBLE_PREFIX if flexible else CLASSIC_PREFIX
    return pack(header_size + body_size, correlation_id)
