"""A walk over the bytes of a request, before kio reads them.

kio's reader trusts the request. It allocates memory for as many elements as an array claims to
have: 17 GB for the 2^31 - 1 of a request of 30 bytes, and if the system refuses that, the process
ends. It fails at tagged fields that it does not know, which a newer client may send. And it returns
None for any array that is null, whatever the schema says (strings and bytes it checks itself). So
the walk refuses arrays that claim more elements than bytes follow them, bounds the elements of a
whole request (an element becomes an object of many times its bytes), refuses null if the schema
does not allow it, and cuts unknown tags out.

It is compiled once per class from kio's own description, and must move exactly as kio's reader
does: `tests/protocol/test_request_walk.py` holds the two together. Any other fault in a request is
left to kio. Imports nothing of kio itself.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.headers import read_unsigned_varint, write_unsigned_varint
from echoless.protocol.request_fields import ELEMENTS_MAX

TAGGED_FIELDS_MAX: Final = 64

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
}


_Replacement = tuple[int, int, bytes]
"""Start and end in the frame, and the bytes to put in their place."""


class _Array(NamedTuple):
    """An array field, as the schema declares it."""

    name: str
    is_flexible: bool
    is_nullable: bool


class _Walk:
    """The progress of one walk."""

    __slots__ = ("elements", "frame", "position", "replacements")

    def __init__(self, frame: Frame, position: int) -> None:
        self.frame = frame
        self.position = position
        self.elements = 0
        self.replacements: list[_Replacement] = []

    def unsigned_varint(self) -> int:
        frame, position = self.frame, self.position
        if position < len(frame) and (byte := frame[position]) < 0x80:  # nearly always
            self.position = position + 1
            return byte
        value, self.position = read_unsigned_varint(frame, position)
        return value

    def integer(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self.frame, self.position)
        self.position += layout.size
        return int(value)

    def count(self, array: _Array) -> int:
        """The number of elements of `array`; 0 for null if it may be null. Raises `DecodeError`."""
        count = self.unsigned_varint() - 1 if array.is_flexible else self.integer(_INT32)
        if count <= 0:
            if count < 0 and not array.is_nullable:
                raise DecodeError(f"{array.name} is null, and may not be")
            return 0
        if count > len(self.frame) - self.position:
            raise DecodeError(f"an array of {count} elements in {len(self.frame)} bytes")
        self.elements += count
        if self.elements > ELEMENTS_MAX:
            raise DecodeError(f"more than {ELEMENTS_MAX} array elements in one request")
        return count


_Step = Callable[[_Walk], None]


def readable_request(cls: type[Any], frame: Frame, position: int) -> Frame:
    """The frame as kio can read the `cls` at `position`: unchanged, except for unknown tags.

    Raises `DecodeError` for an impossible count, and if a length or a count is missing.
    """
    walk = _Walk(frame, position)
    try:
        _entity_step(cls)(walk)  # type: ignore[arg-type]  # a class is hashable; Any hides it
    except struct.error as error:
        raise DecodeError(f"the request ends after {len(frame)} bytes, in mid field") from error
    return _replaced(frame, walk.replacements) if walk.replacements else frame


def _replaced(frame: Frame, replacements: Sequence[_Replacement]) -> bytes:
    parts: list[Frame] = []
    position = 0
    for start, end, data in replacements:
        parts += (frame[position:start], data)
        position = end
    return b"".join([*parts, frame[position:]])


@functools.cache
def _entity_step(cls: type[Any]) -> _Step:
    """Untagged fields in their order, followed, in flexible versions, by the tagged ones."""
    fields = dataclasses.fields(cls)
    flexible: bool = cls.__flexible__
    steps = [_field_step(field, flexible=flexible) for field in fields if not _is_tagged(field)]
    if flexible:
        known = {
            int(field.metadata["tag"]): _all_of(_merged([_field_step(field, flexible=True)]))
            for field in fields
            if _is_tagged(field)
        }
        steps.append(functools.partial(_walk_tagged_fields, known=known))
    return _all_of(_merged(steps))


def _is_tagged(field: dataclasses.Field[Any]) -> bool:
    return "tag" in field.metadata


def _field_step(field: dataclasses.Field[Any], *, flexible: bool) -> _Step | int:
    """A way to walk over a field; a number if it always has that many bytes."""
    annotations = _parts(field.type)
    entity = next((part for part in annotations if dataclasses.is_dataclass(part)), None)
    if entity is not None:
        step: _Step | int = _entity_step(entity)  # type: ignore[arg-type]
    else:
        step = _primitive_step(field.metadata["kafka_type"], flexible=flexible)
    if not any(typing.get_origin(part) is tuple for part in annotations):
        return step
    is_nullable = NoneType in typing.get_args(field.type)
    return _array_step(step, _Array(field.name, flexible, is_nullable))


def _parts(annotation: Any) -> list[Any]:
    """The annotation and everything inside it."""
    return [annotation, *(part for inner in typing.get_args(annotation) for part in _parts(inner))]


def _primitive_step(kafka_type: str, *, flexible: bool) -> _Step | int:
    if kafka_type in _FIXED_SIZES:
        return _FIXED_SIZES[kafka_type]
    if flexible:
        return _walk_compact
    return {"string": _walk_string, "records": _walk_bytes, "bytes": _walk_bytes}[kafka_type]


def _walk_string(walk: _Walk) -> None:
    size = walk.integer(_INT16)
    if size > 0:
        walk.position += size


def _walk_bytes(walk: _Walk) -> None:
    size = walk.integer(_INT32)
    if size > 0:
        walk.position += size


def _walk_compact(walk: _Walk) -> None:
    size = walk.unsigned_varint() - 1
    if size > 0:
        walk.position += size


def _array_step(element: _Step | int, array: _Array) -> _Step:
    if isinstance(element, int):

        def walk_fixed(walk: _Walk) -> None:
            count = walk.count(array)  # moves the position first
            walk.position += count * element

        return walk_fixed

    def walk_each(walk: _Walk) -> None:
        for _ in range(walk.count(array)):
            element(walk)

    return walk_each


def _walk_tagged_fields(walk: _Walk, known: Mapping[int, _Step]) -> None:
    """Checks that a known field has the size it claims, so that either leads to the same end."""
    start = walk.position
    count = walk.unsigned_varint()
    if not count:
        return
    if count > TAGGED_FIELDS_MAX:
        raise DecodeError(f"{count} tagged fields; at most {TAGGED_FIELDS_MAX} are read")
    kept: list[Frame] = []
    for _ in range(count):
        field_start = walk.position
        tag, size = walk.unsigned_varint(), walk.unsigned_varint()
        end = walk.position + size
        if end > len(walk.frame):
            raise DecodeError("tagged fields reach past the end of the request")
        if tag in known:
            replaced = len(walk.replacements)
            known[tag](walk)
            if walk.position != end or len(walk.replacements) != replaced:
                raise DecodeError(f"tagged field {tag} claims {size} bytes, and holds others")
            kept.append(walk.frame[field_start:end])
        walk.position = end
    if len(kept) < count:
        replacement = b"".join([write_unsigned_varint(len(kept)), *kept])
        walk.replacements.append((start, walk.position, replacement))


def _merged(steps: Iterable[_Step | int]) -> list[_Step]:
    """Neighbours of fixed size become one step."""
    merged: list[_Step] = []
    fixed = 0
    for step in steps:
        if isinstance(step, int):
            fixed += step
            continue
        if fixed:
            merged.append(_skip(fixed))
            fixed = 0
        merged.append(step)
    return [*merged, _skip(fixed)] if fixed else merged


def _skip(size: int) -> _Step:
    def skip(walk: _Walk) -> None:
        walk.position += size

    return skip


def _all_of(steps: list[_Step]) -> _Step:
    if len(steps) == 1:
        return steps[0]

    def walk_all(walk: _Walk) -> None:
        for step in steps:
            step(walk)

    return walk_all
