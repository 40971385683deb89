"""Fields of requests that are read by hand: sizes and counts that are bounded by the frame.

A claimed size never takes memory before the bytes are known to be there. Used by the readers of Produce,
Fetch and OffsetCommit, and of the requests that every producer begins with; every other request is read by kio, after a walk
(`request_walk.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.headers import read_unsigned_varint

Body = TypeVar("Body")
Reader = Callable[[int, Frame, int], Body]
"""Reads the body of a request, given its version, its frame and its position there."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
ELEMENTS_MAX: Final = 25_000
"""Limit on the array elements of one request: each becomes an object of many times its bytes."""
ELEMENTS_AT_ONCE: Final = 2000
"""Elements of a Produce request that are read in one step of an event loop."""


class ManyElementsError(DecodeError):
    """The request is to be read beside the event loop: it has more elements than are read at once."""


def compact_size(frame: Frame, position: int) -> tuple[int, int]:
    """`(size, position after it)` of a compact string, bytes or array; -1 for null."""
    first = frame[position]
    if first < 0x80:
        return first - 1, position + 1
    second = frame[position + 1]
    if second < 0x80:  # nearly every size takes one byte or two
        return (first & 0x7F | second << 7) - 1, position + 2
    size, position = read_unsigned_varint(frame, position)
    return size - 1, position


def field_bytes(frame: Frame, begin: int, size: int) -> Frame:
    """The bytes of a field. Raises `DecodeError` for null and for those that are not in the frame."""
    end = begin + size
    if size < 0 or end > len(frame):
        raise DecodeError(f"a field of {size} bytes at {begin} of {len(frame)}")
    return frame[begin:end]


def add_elements(frame: Frame, position: int, count: int, elements: int, most: int) -> int:
    """`elements` and `count` together: each takes at least one byte of the frame. Raises `DecodeError`.

    Above `most` elements, if that is less than `ELEMENTS_MAX`, it is a `ManyElementsError`.
    """
    elements += count
    if count < 0 or count > len(frame) - position or elements > most:
        if most < elements <= ELEMENTS_MAX and 0 <= count <= len(frame) - position:
            raise ManyElementsError(f"{elements} elements or more")
        raise DecodeError(
            f"an array of {count} elements in {len(frame)} bytes; at most {ELEMENTS_MAX} in all"
        )
    return elements


def nullable_string(frame: Frame, position: int, *, flexible: bool) -> tuple[str | None, int]:
    """`(text, position after it)`; None for null."""
    if flexible:
        size, position = compact_size(frame, position)
    else:
        (size,) = _INT16.unpack_from(frame, position)
        position += _INT16.size
    if size == -1:
        return None, position
    return str(field_bytes(frame, position, size), "utf-8"), position + size


def string(frame: Frame, position: int, *, flexible: bool) -> tuple[str, int]:
    """`(text, position after it)`. Raises `DecodeError` for null."""
    text, end = nullable_string(frame, position, flexible=flexible)
    if text is None:
        raise DecodeError(f"the string at {position} of {len(frame)} is null, and may not be")
    return text, end


def array_size(frame: Frame, position: int, *, flexible: bool) -> tuple[int, int]:
    """`(number of elements, position after it)`; -1 for null."""
    if flexible:
        return compact_size(frame, position)
    (size,) = _INT32.unpack_from(frame, position)
    return size, position + _INT32.size


def boolean(frame: Frame, position: int) -> tuple[bool, int]:
    """`(value, position after it)`. Raises `DecodeError` for a byte other than 0 and 1."""
    byte = frame[position]
    if byte > 1:
        raise DecodeError(f"a boolean of {byte} at {position}")
    return byte == 1, position + 1


def refusing_cut_frames(name: str, read: Reader[Body]) -> Reader[Body]:
    """`read`, which raises `DecodeError` for a frame that ends too early and for text that is not UTF-8."""

    def read_or_refuse(version: int, frame: Frame, position: int) -> Body:
        try:
            return read(version, frame, position)
        except (struct.error, IndexError) as error:
            raise DecodeError(
                f"the {name} request ends after {len(frame)} bytes, in mid field"
            ) from error
        except UnicodeDecodeError as error:
            raise DecodeError(f"a string in the {name} request is not UTF-8: {error}") from error

    return read_or_refuse
