"""The fields of one native message: decoded, checked and defaulted one at a time, by name.

Nil counts as left out. Every failure is a `KafkaError` INVALID_REQUEST that names the message, the
field, what it takes and what was found.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.codec import decode_binary, decode_value

VALUE_BYTES_MAX: Final = 65536
"""Limit on one value in bytes, unless its field says otherwise."""
_NIL: Final = 0xC0
_FIXINT_END: Final = 0x80
"""Bytes below it are integers that encode themselves."""
_UUID_SIZE: Final = 16


class Fields:
    """The fields that a client sent, by name."""

    __slots__ = ("_encoded", "_message")

    def __init__(self, message: str, encoded: dict[str, memoryview]) -> None:
        """`message` is the message's type, for error messages."""
        self._message = message
        self._encoded = encoded

    def __contains__(self, name: str) -> bool:
        encoded = self._encoded.get(name)
        return encoded is not None and encoded[0] != _NIL

    def size(self, name: str) -> int:
        """Bytes of the encoded value; 0 if it is left out."""
        return len(self._encoded[name]) if name in self else 0

    @property
    def last(self) -> str | None:
        """The name of the field that ends the message."""
        return next(reversed(self._encoded), None)

    def places(self, frame_size: int) -> dict[str, int] | None:
        """The position of each value in its frame, in their order; None unless the names are encoded in the shortest way."""
        places, position = {}, 1
        for name, value in self._encoded.items():
            places[name] = position = position + 1 + len(name.encode())
            position += len(value)
        return places if position == frame_size else None  # what is longer does not add up

    def integer(
        self,
        name: str,
        default: int | None = None,
        *,
        least: int = -(2**31),
        most: int = 2**31 - 1,
    ) -> int:
        """An integer from `least` to `most`, both included."""
        value = self._value(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(name, f"an integer from {least} to {most}", value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return value

    def boolean(self, name: str, default: bool | None = None) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def texts(self, name: str) -> list[str]:
        """An array of texts."""
        value = self._value(name, None)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._wrong(name, "an array of texts", value)
        return value

    def text_map(self, name: str) -> dict[str, str]:
        """A map from texts to texts; empty if it is left out."""
        value = self._value(name, {})
        if not isinstance(value, dict) or not all(
            isinstance(one, str) for one in (*value, *value.values())
        ):
            raise self._wrong(name, "a map from texts to texts", value)
        return value

    def array(self, name: str, bytes_max: int) -> list[Any]:
        """An array of any values, encoded in at most `bytes_max`; the caller checks them."""
        value = self._value(name, None, bytes_max)
        if not isinstance(value, list):
            raise self._wrong(name, "an array", value)
        return value

    def binary(self, name: str) -> memoryview:
        """Bytes of any length, as a view of the frame: nothing is copied."""
        encoded = self._encoded.get(name)
        value = None if encoded is None else decode_binary(encoded)
        if value is None:
            raise self.complaint(f"{name} takes bytes") if name in self else self._missing(name)
        return value

    def topic_id(self, name: str) -> uuid.UUID:
        """A UUID, sent as its 16 bytes."""
        data = bytes(self.binary(name)) if name in self else b""
        if len(data) != _UUID_SIZE:
            raise self.complaint(f"{name} takes the 16 bytes of a UUID")
        return uuid.UUID(bytes=data)

    def complaint(self, text: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> KafkaError:
        """A `KafkaError` about this message."""
        return KafkaError(code, f"{self._message}: {text}")

    def _value(self, name: str, default: Any, bytes_max: int = VALUE_BYTES_MAX) -> Any:
        encoded = self._encoded.get(name)
        if encoded is None or (first := encoded[0]) == _NIL:
            if default is None:
                raise self._missing(name)
            return default
        if first < _FIXINT_END:
            return first
        if len(encoded) > bytes_max:
            raise self.complaint(f"{name} has {len(encoded)} bytes, at most {bytes_max} are taken")
        try:
            return decode_value(encoded)
        except DecodeError as error:
            raise self.complaint(f"{name} cannot be read: {error}") from error

    def _missing(self, name: str) -> KafkaError:
        return self.complaint(f"the field {name} is missing")

    def _wrong(self, name: str, expected: str, value: object) -> KafkaError:
        found = repr(value) if isinstance(value, int | float) else type(value).__name__
        return self.complaint(f"{name} takes {expected}, not {found}")
