"""The smallest valid request and response of any API and version, built from kio's own description of it."""

from __future__ import annotations

import dataclasses
import datetime
import typing
import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.raw_client import message

_VALUES: dict[str, Any] = {
    "bool": False,
    "string": "x",
    "uuid": uuid.UUID(int=1),
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "records": b"",
    "bytes": b"",
    "datetime_i64": datetime.datetime.fromtimestamp(0, tz=datetime.UTC),
}
_SPECIAL: dict[tuple[str, str], Any] = {
    ("ProduceRequest", "acks"): 1,  # with 0 there is no answer
    ("DeleteTopicState", "topic_id"): None,  # identified by its name
    ("FetchRequest", "session_id"): 0,
}
"""Values that a valid request needs instead of zero."""


def smallest_request(api: str, version: int, *, elements: int) -> Any:
    """A request in which every array of structures has `elements` entries, and every number is 0."""
    return _build(message(api, version, "Request"), elements)


def smallest_response(api: str, version: int, *, elements: int) -> Any:
    """The same for a response."""
    return _build(message(api, version, "Response"), elements)


def _build(cls: type[Any], elements: int) -> Any:
    values = {
        field.name: _SPECIAL[cls.__name__, field.name]
        if (cls.__name__, field.name) in _SPECIAL
        else _value(field, elements)
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING or (cls.__name__, field.name) in _SPECIAL
    }
    return cls(**values)


def _value(field: dataclasses.Field[Any], elements: int) -> Any:
    nested = next((part for part in _parts(field.type) if dataclasses.is_dataclass(part)), None)
    if nested is not None and field.type is nested:
        return _build(typing.cast("type[Any]", nested), elements)
    if nested is not None:
        return tuple(_build(typing.cast("type[Any]", nested), elements) for _ in range(elements))
    if field.metadata["kafka_type"] == "error_code":
        return ErrorCode.none
    return _VALUES.get(field.metadata["kafka_type"], 0)


def _parts(annotation: Any) -> list[Any]:
    """The annotation and everything inside it."""
    found = [annotation]
    for argument in typing.get_args(annotation):
        found += _parts(argument)
    return found
