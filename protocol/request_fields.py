"""Fields of requests that are read by hand: sizes and counts that are bounded by the frame.

A claimed size never takes memory before the bytes are known to be there. Used by the readers of Produce and
Fetch; every other request is read by kio, after a walk (`request_walk.py`).
"""

from __future__ import annotations

from typing import Final

from protocol.errors import DecodeError
from protocol.framing import Frame
from protocol.headers import read_unsigned_varint

ELEMENTS_MAX: Final = 25_000
"""Limit on the array elements of one request: each becomes an object of many times its bytes."""


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
    """`elements` and `count` together: each takes at least one byte of the frame. Raises `DecodeError`."""
    elements += count
    if count < 0 or count > len(frame) - position or elements > most:
        raise DecodeError(
            f"an array of {count} elements in {len(frame)} bytes; at most {most} in all"
        )
    return elements
