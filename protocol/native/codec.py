"""Native messages as bytes: one msgpack map per message, after a length prefix (`framing.py`).

A message is decoded in two steps, so that hostile bytes stay cheap. `locate_fields` finds where
each value begins and ends without building it; excessive nesting, missing bytes and trailing bytes
fail there. `decode_value` then builds one value, of bounded size, when a message asks for it;
fields that no message asks for are never built. A ready-made batch is not even copied.

Imports msgpack: load this file with the first native message, not at start.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame

FIELDS_MAX: Final = 64
NAME_BYTES_MAX: Final = 64
ENTRIES_MAX: Final = 10_000
"""Limit on one array, such as the records of a message."""
RECORD_FIELDS_MAX: Final = 1000
"""Limit on one map inside a value."""

PACKED_BYTES_MAX: Final = 16 * 1024
"""Batches of up to this many bytes are copied into their message."""

_NAMES: Final[dict[bytes, str]] = {}
"""Names that were read before, by their encoding. All are forgotten when they are too many."""
_NAMES_MAX: Final = 1000

_BINARY_32: Final = struct.Struct(">BI")
_BINARY_HEADER_SIZES: Final = {0xC4: 2, 0xC5: 3, 0xC6: 5}


def locate_fields(frame: Frame) -> dict[str, memoryview]:
    """The encoded value of each field of a message, by name.

    Raises `DecodeError` unless the frame is exactly one map with at most `FIELDS_MAX` fields, whose
    names are distinct texts.
    """
    view = memoryview(frame)
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(frame), 1))
    unpacker.feed(frame)
    skip, tell = unpacker.skip, unpacker.tell
    fields: dict[str, memoryview] = {}
    try:
        count = unpacker.read_map_header()
        if count > FIELDS_MAX:
            raise DecodeError(f"a message of {count} fields; at most {FIELDS_MAX} are read")
        end = tell()
        for _ in range(count):
            begin = end
            skip()
            end = tell()
            name = _name(frame[begin:end])
            if name in fields:
                raise DecodeError(f"the field {name} appears twice in a message")
            begin = end
            skip()
            end = tell()
            fields[name] = view[begin:end]
    except (msgpack.UnpackException, ValueError) as error:
        raise DecodeError("a message is one msgpack map, and nothing else") from error
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes follow the message")
    return fields


def decode_value(encoded: memoryview) -> Any:
    """The value: text, bytes, numbers, and arrays and maps of these. Raises `DecodeError`.

    Extension types are refused, as are arrays and maps above the limits of this file. The result
    may take sixty times the bytes of `encoded`; the caller bounds `encoded`.
    """
    try:
        return msgpack.unpackb(
            encoded,
            max_array_len=ENTRIES_MAX,
            max_map_len=RECORD_FIELDS_MAX,
            max_ext_len=0,
        )
    except (msgpack.UnpackException, ValueError) as error:
        raise DecodeError(str(error) or type(error).__name__) from error


def decode_message(frame: Frame) -> dict[str, Any]:
    """Decodes a whole message at once, for an answer from a broker. Raises `DecodeError`.

    Unlike a client, a broker is not expected to be hostile: the frame's size is the only limit.
    """
    try:
        message = msgpack.unpackb(frame, max_ext_len=0)
    except (msgpack.UnpackException, ValueError) as error:
        raise DecodeError(str(error) or type(error).__name__) from error
    if not isinstance(message, dict) or not all(isinstance(name, str) for name in message):
        raise DecodeError("a message is one msgpack map of named fields")
    return message


def decode_binary(encoded: memoryview) -> memoryview | None:
    """The bytes of a binary value, in place; None if it is of another type."""
    size = _BINARY_HEADER_SIZES.get(encoded[0])
    return None if size is None else encoded[size:]


def encode_message(fields: Mapping[str, Any]) -> bytes:
    """The bytes of a message, without its length prefix. UUIDs are written as text."""
    data: bytes = msgpack.packb(fields, default=_plain)
    return data


def encode_message_in_buffers(fields: Mapping[str, Any]) -> list[bytes]:
    """The bytes of a message whose `batches`, or those of its `partitions`, may be large.

    They are buffers of their own: to pack them would copy them, and the copy would grow several times.
    """
    packer = msgpack.Packer(default=_plain, autoreset=False)
    out: list[bytes] = []
    _add_map(packer, out, fields)
    out.append(packer.bytes())
    return out


def _add_map(packer: Any, out: list[bytes], fields: Mapping[str, Any]) -> None:
    packer.pack_map_header(len(fields))
    for name, value in fields.items():
        packer.pack(name)
        if name == "batches" and len(value) > PACKED_BYTES_MAX:
            out += (packer.bytes(), _BINARY_32.pack(0xC6, len(value)), value)
            packer.reset()
        elif name == "partitions":
            packer.pack_array_header(len(value))
            for row in value:
                if len(row["batches"]) > PACKED_BYTES_MAX:
                    _add_map(packer, out, row)
                else:
                    packer.pack(row)
        else:
            packer.pack(value)


def _name(encoded: Frame) -> str:
    """The name of a field; clients send the same ones all the time."""
    if len(encoded) > NAME_BYTES_MAX:
        raise DecodeError(f"a field name of {len(encoded)} bytes; {NAME_BYTES_MAX} are read")
    data = bytes(encoded)
    name = _NAMES.get(data)
    if name is None:
        name = decode_value(memoryview(data))
        if not isinstance(name, str):
            raise DecodeError("the fields of a message are named by texts")
        if len(_NAMES) >= _NAMES_MAX:
            _NAMES.clear()
        _NAMES[data] = name
    return name


def _plain(value: object) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be sent")
