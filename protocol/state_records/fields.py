"""Fields of state records: big-endian, strings and bytes after their length, which is compact in a flexible version."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from echoless.protocol.errors import DecodeError
from echoless.protocol.headers import read_unsigned_varint, write_unsigned_varint

Value = TypeVar("Value")

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
STRING_BYTES_MAX: Final = 0x7FFF
"""The longest string that a length of 16 bits can announce."""
ELEMENTS_MAX: Final = 100_000
"""The most elements of an array: each becomes an object of many times its bytes."""


class FieldReader:
    """Reads one field after the other. Raises `DecodeError` if the bytes end or make no sense."""

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    def int8(self) -> int:
        return self._number(INT8)

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise DecodeError(f"a string before byte {self._position} is null, and may not be")
        return text

    def nullable_string(self) -> str | None:
        size = self._compact_size() if self.flexible else self.int16()
        if size == -1:
            return None
        try:
            return str(self._take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(
                f"a string before byte {self._position} is not UTF-8: {error}"
            ) from error

    def bytes_(self) -> bytes:
        size = self._compact_size() if self.flexible else self.int32()
        return self._take(size)

    def raw(self, size: int) -> bytes:
        """Takes `size` bytes, which have no length before them."""
        return self._take(size)

    def array(
        self, read: Callable[[FieldReader], Value], most: int = ELEMENTS_MAX
    ) -> tuple[Value, ...]:
        """Reads a length of at most `most`, and as many values, each with `read`."""
        return self._elements(self._compact_size() if self.flexible else self.int32(), read, most)

    def nullable_array(self, read: Callable[[FieldReader], Value]) -> tuple[Value, ...] | None:
        """Reads an array that may be null."""
        count = self._compact_size() if self.flexible else self.int32()
        return None if count == -1 else self._elements(count, read, ELEMENTS_MAX)

    def _elements(
        self, count: int, read: Callable[[FieldReader], Value], most: int
    ) -> tuple[Value, ...]:
        if not 0 <= count <= min(most, len(self._data) - self._position):
            raise DecodeError(f"an array of {count} elements in {len(self._data)} bytes")
        return tuple([read(self) for _ in range(count)])

    def tag_buffer(self) -> dict[int, bytes]:
        """Reads the tagged fields, by tag; none if the version is not flexible."""
        if not self.flexible:
            return {}
        count, self._position = read_unsigned_varint(self._data, self._position)
        fields = {}
        for _ in range(count):
            tag, self._position = read_unsigned_varint(self._data, self._position)
            size, self._position = read_unsigned_varint(self._data, self._position)
            fields[tag] = self._take(size)
        return fields

    def _number(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._position)
        except struct.error as error:
            raise DecodeError(
                f"the record ends in mid field, after {len(self._data)} bytes"
            ) from error
        self._position += form.size
        return int(value)

    def _compact_size(self) -> int:
        size, self._position = read_unsigned_varint(self._data, self._position)
        return size - 1

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise DecodeError(
                f"a field of {size} bytes at {self._position} of {len(self._data)} bytes"
            )
        self._position, begin = end, self._position
        return self._data[begin:end]


def open_value(
    data: bytes, what: str, *, version_max: int, flexible_from: int
) -> tuple[int, FieldReader]:
    """Reads the version of a value; returns it, and the reader of the fields behind it.

    `what` names the value in the error. Raises `DecodeError` if the version is not known: what the record replaces would
    be served although it is out of date.
    """
    reader = FieldReader(data)
    version = reader.int16()
    if not 0 <= version <= version_max:
        raise DecodeError(f"{what} of version {version}; at most {version_max} is known")
    reader.flexible = version >= flexible_from
    return version, reader


def pack_string(text: str | None, *, flexible: bool = False) -> bytes:
    """Packs `text` after its length; None is null."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    data = text.encode()
    return (write_unsigned_varint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def pack_bytes(data: bytes, *, flexible: bool = False) -> bytes:
    """Packs `data` after its length."""
    return pack_size(len(data), flexible=flexible) + data


def pack_size(size: int, *, flexible: bool = False) -> bytes:
    """Packs the length of bytes or of an array."""
    return write_unsigned_varint(size + 1) if flexible else INT32.pack(size)
