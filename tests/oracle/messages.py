"""Requests of any version from plain values, and responses as plain values. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import typing
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from tests.support.raw_client import message

Plain = Any
"""Numbers, strings, bytes, and lists and mappings of them."""

_LEFT_OUT: Final = frozenset({"throttle_time", "error_message", "host", "port", "node_id"})
_MEMBER_IDS: Final = frozenset({"member_id", "leader"})


def request_of(api: str, version: int, values: Mapping[str, Plain]) -> Any:
    """kio's request; values that the version lacks are left out."""
    return _build(message(api, version, "Request"), values)


def renamed(values: Plain, old: str, new: str) -> Plain:
    """The values with `new` in place of every string that is `old`."""
    if isinstance(values, Mapping):
        return {key: renamed(value, old, new) for key, value in values.items()}
    if isinstance(values, list):
        return [renamed(value, old, new) for value in values]
    return new if isinstance(values, str) and values == old else values


def _build(cls: type[Any], values: Mapping[str, Plain]) -> Any:
    given = {}
    for field in dataclasses.fields(cls):
        if field.name not in values:
            continue
        value = values[field.name]
        nested = _nested(field.type)
        if nested is not None and value is not None:
            value = tuple(_build(nested, one) for one in value)
        elif isinstance(value, list):
            value = tuple(value)
        elif str(field.metadata.get("kafka_type", "")).startswith("timedelta"):
            value = datetime.timedelta(milliseconds=value)
        given[field.name] = value
    return cls(**given)


def _nested(annotation: Any) -> type[Any] | None:
    for part in typing.get_args(annotation):
        if dataclasses.is_dataclass(part):
            return typing.cast("type[Any]", part)
        if (found := _nested(part)) is not None:
            return found
    return None


def plain(
    response: Any, name_of: Callable[[Any], Plain], named: AbstractSet[str] = _MEMBER_IDS
) -> Plain:
    """The response without what may differ: times, addresses, texts; fields that are `named` get names, rows are sorted."""
    if dataclasses.is_dataclass(response):
        found = {}
        for field in dataclasses.fields(response):
            if field.name in _LEFT_OUT:
                continue
            value = plain(getattr(response, field.name), name_of, named)
            found[field.name] = name_of(value) if field.name in named else value
        return found
    if isinstance(response, tuple):
        return sorted((plain(one, name_of, named) for one in response), key=repr)
    if isinstance(response, enum.IntEnum):
        return int(response)
    return response
