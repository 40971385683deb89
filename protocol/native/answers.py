"""Values already decoded by msgpack, checked one at a time by name.

For what another broker sends: the answers to our messages, and the entries of arrays. A peer is not
hostile, but it may be broken, of another version, or no broker at all; anything in its answer that
makes no sense is a `DecodeError` that names the field, and never reaches a log.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from echoless.protocol.errors import DecodeError

INT64_MAX: Final = 2**63 - 1
_UUID_SIZE: Final = 16


class Answer:
    """A decoded map whose values have not been checked yet."""

    __slots__ = ("_fields", "_where")

    def __init__(self, where: str, fields: object) -> None:
        """`where` names the map in error messages. Raises `DecodeError` if it is not a map."""
        if not isinstance(fields, dict):
            raise DecodeError(f"{where} is a map, not {type(fields).__name__}")
        self._where = where
        self._fields: Mapping[str, Any] = fields

    def integer(self, name: str, least: int = 0, most: int = INT64_MAX) -> int:
        """An integer from `least` to `most`, both included."""
        value = self._fields.get(name)
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(name, f"an integer from {least} to {most}", value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text; `default` is what stands for a missing one."""
        value = self._fields.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return value

    def boolean(self, name: str) -> bool:
        value = self._fields.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def binary(self, name: str) -> bytes:
        value = self._fields.get(name)
        if not isinstance(value, bytes):
            raise self._wrong(name, "bytes", value)
        return value

    def topic_id(self, name: str) -> uuid.UUID:
        """A UUID as its 16 bytes."""
        value = self._fields.get(name)
        if not isinstance(value, bytes) or len(value) != _UUID_SIZE:
            raise self._wrong(name, "the 16 bytes of a UUID", value)
        return uuid.UUID(bytes=value)

    def array(self, name: str, count: int | None = None) -> list[Any]:
        """An array of any values, with exactly `count` entries if that is given."""
        value = self._fields.get(name)
        if not isinstance(value, list) or (count is not None and len(value) != count):
            length = "" if count is None else f" of {count}"
            raise self._wrong(name, f"an array{length}", value)
        return value

    def pair(self, name: str, least: int, most: int = INT64_MAX) -> tuple[int, int] | None:
        """Two integers from `least` to `most`, or None."""
        value = self._fields.get(name)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or len(value) != 2
            or not all(type(one) is int and least <= one <= most for one in value)
        ):
            raise self._wrong(name, f"two integers from {least} to {most}", value)
        return value[0], value[1]

    def complaint(self, text: str) -> DecodeError:
        """A `DecodeError` about this map."""
        return DecodeError(f"{self._where}: {text}")

    def _wrong(self, name: str, expected: str, value: object) -> DecodeError:
        found = repr(value) if isinstance(value, int | float) else type(value).__name__
        if isinstance(value, list | bytes):
            found += f" of {len(value)}"
        return self.complaint(f"{name} takes {expected}, not {found}")
