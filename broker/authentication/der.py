"""DER, as far as certificates need it: the values that one value is made of. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_LONG_LENGTH: Final = 0x80


class DerValue(NamedTuple):
    """One DER value: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    encoded: bytes


def der_values(data: bytes) -> Iterator[DerValue]:
    """The values in `data`, one behind the other. Raises `ValueError` for one that is cut off."""
    position = 0
    while position < len(data):
        begin, position = position, position + 2
        tag, length = data[begin], int.from_bytes(data[begin + 1 : begin + 2])
        if length >= _LONG_LENGTH:
            count = length - _LONG_LENGTH
            length = int.from_bytes(data[position : position + count])
            position += count
        end = position + length
        if end > len(data):
            raise ValueError("the certificate is cut off")
        yield DerValue(tag, data[position:end], data[begin:end])
        position = end
