"""Plain values -> kio entities, whatever the version.

kio has one class per API and version. Handlers answer with plain mappings; this file turns them
into the entity of the requested version. The rules of a class are worked out once and kept. Imports
kio: load it when the first response is encoded, not at start.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

_Convert = Callable[[Any], Any]
_EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)


def _milliseconds(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def _timestamp(value: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(milliseconds=value)


def _nullable_timestamp(value: int) -> datetime.datetime | None:
    return None if value < 0 else _timestamp(value)


_CONVERSIONS: dict[str, _Convert] = {
    "error_code": ErrorCode,
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _timestamp,
}


@functools.cache
def entity_builder(cls: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    """A function that makes a `cls` from a mapping of field names to plain values.

    Raises `KeyError` for a missing field without a default: a handler's mistake.
    """
    conversions = {field.name: _conversion(field) for field in dataclasses.fields(cls)}
    required = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def build(fields: Mapping[str, Any]) -> Any:
        missing = required - fields.keys()
        if missing:
            raise KeyError(f"{cls.__module__}.{cls.__name__} needs {', '.join(sorted(missing))}")
        return cls(
            **{
                name: convert(fields[name])
                for name, convert in conversions.items()
                if name in fields
            }
        )

    return build


def _conversion(field: dataclasses.Field[Any]) -> _Convert:
    arguments = typing.get_args(field.type)
    entity = next(
        (part for part in (field.type, *arguments) if dataclasses.is_dataclass(part)), None
    )
    is_array = typing.get_origin(field.type) is tuple or any(
        typing.get_origin(argument) is tuple for argument in arguments
    )
    if entity is None and is_array:
        nested = [part for argument in arguments for part in typing.get_args(argument)]
        entity = next((part for part in nested if dataclasses.is_dataclass(part)), None)
    convert = (
        _unless_null(entity_builder(typing.cast("type[Any]", entity)))  # type: ignore[arg-type]
        if entity is not None
        else _plain_conversion(field)
    )
    return _for_each(convert) if is_array else convert


def _plain_conversion(field: dataclasses.Field[Any]) -> _Convert:
    """The conversion of one value; -1 is no time where a time may be missing, and else itself."""
    kind = field.metadata.get("kafka_type", "")
    if kind == "datetime_i64" and type(None) in typing.get_args(field.type):
        return _nullable_timestamp
    return _CONVERSIONS.get(kind, _unchanged)


def _unchanged(value: Any) -> Any:
    return value


def _unless_null(build: _Convert) -> _Convert:
    return lambda value: None if value is None else build(value)


def _for_each(convert: _Convert) -> _Convert:
    def convert_all(values: Any) -> Any:
        return None if values is None else tuple(convert(value) for value in values)

    return convert_all
