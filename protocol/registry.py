"""An API: its key, its versions, and the kio classes that carry it.

An `Api` is declared once, in `broker/handlers/apis.py`; ApiVersions, the dispatcher and the handlers
read the declarations, so the broker cannot claim what it does not serve. kio's classes are imported
when a version is first used: all of them together would cost the start more than the rest of the
broker. The first import takes 40 ms and each further version up to 10 ms, so a server asks
`can_decode` and `can_encode` first, and imports in a thread.
"""

from __future__ import annotations

import functools
import importlib
import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.known.memory import SeenBytes


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Api:
    """One API of the Kafka protocol as Echoless serves it. Versions are inclusive."""

    key: int
    name: str
    """kio's package name, for instance `init_producer_id`."""
    version_min: int
    version_max: int
    flexible_from: int
    """First version with compact types and tagged fields."""
    listed_min: int | None = None
    """Lowest version that ApiVersions lists, if it differs from the lowest one served."""
    read_request: Callable[[int, Frame, int], Any] | None = None
    """Reads a request by hand, `(version, frame, position)`, if kio would cost too much."""
    read_known: Callable[[SeenBytes, int, Frame, int], Any] | None = None
    """Reads the same from a connection that has sent requests before (`protocol/known/`)."""
    read_at_once_bytes: int = 8 * 1024
    """A longer request takes too long to read for the event loop: a row may have three bytes, and takes a microsecond."""

    def serves(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def can_decode(self, version: int) -> bool:
        """Whether a request of this version can be read without an import."""
        return self.read_request is not None or (self.name, version) in _DECODABLE

    def can_encode(self, version: int) -> bool:
        """Whether `encode_response` needs no import for this version."""
        return (self.name, version) in _ENCODABLE

    def prepare_decoding(self, version: int) -> None:
        """Imports what `decode_request` needs; to be called in a thread."""
        if self.read_request is None:
            _unreadable()
            _request_reader(self.name, version)
            _DECODABLE.add((self.name, version))

    def decode_request(self, version: int, frame: Frame, position: int) -> Any:
        """The kio request entity (or what `read_request` makes) whose body starts at `position`.

        Raises `DecodeError`.
        """
        if self.read_request is not None:
            return self.read_request(version, frame, position)
        read = _request_reader(self.name, version)
        try:
            entity, _ = read(frame, position)
        except _unreadable() as error:
            reason = str(error) or type(error).__name__
            raise DecodeError(f"{self.name} v{version} request: {reason}") from error
        return entity

    def encode_response(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """The body of a response given as plain values.

        `fields` is shaped like kio's response class of the newest version: nested entities are
        mappings, times are integer milliseconds, error codes integers. Fields that `version` does
        not have are left out; fields that are missing take the schema's default.
        """
        encode: Callable[[Mapping[str, Any]], bytes] = _response_encoder(self.name, version)
        return encode(fields)


_DECODABLE: Final[set[tuple[str, int]]] = set()
_ENCODABLE: Final[set[tuple[str, int]]] = set()
"""Names and versions of APIs whose classes have been imported."""


def _without_hypothesis() -> None:
    """Keeps kio from importing Hypothesis: 130 ms and 20 MB that no broker needs."""
    if "kio" not in sys.modules and "hypothesis" not in sys.modules:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
        try:
            importlib.import_module("kio.static.primitive")
        finally:
            del sys.modules["hypothesis"]


@functools.cache
def _unreadable() -> tuple[type[Exception], ...]:
    _without_hypothesis()
    from kio.serial.errors import SerialError  # noqa: PLC0415 - see the module docstring

    # OverflowError and ValueError: values that fit the wire type but not Python's type, such as
    # dates.
    return (DecodeError, SerialError, OverflowError, ValueError)


def _entity_class(name: str, version: int, kind: str) -> type[Any]:
    _without_hypothesis()
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    class_name = "".join(part.capitalize() for part in name.split("_")) + kind.capitalize()
    cls: type[Any] = getattr(module, class_name)
    return cls


@functools.cache
def _request_reader(name: str, version: int) -> Any:
    cls = _entity_class(name, version, "request")
    from kio.serial import entity_reader  # noqa: PLC0415

    from echoless.protocol.request_walk import readable_request  # noqa: PLC0415

    read_trusting = entity_reader(cls)

    def read(frame: Frame, position: int) -> Any:
        return read_trusting(readable_request(cls, frame, position), position)

    return read


@functools.cache
def _response_encoder(name: str, version: int) -> Any:
    cls = _entity_class(name, version, "response")
    from kio.serial import entity_writer  # noqa: PLC0415

    from echoless.protocol.entities import entity_builder  # noqa: PLC0415

    build = entity_builder(cls)  # type: ignore[arg-type]  # a class is hashable; Any hides it
    write = entity_writer(cls)

    def encode(fields: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        write(out, build(fields))
        return out.getvalue()

    _ENCODABLE.add((name, version))
    return encode
