"""Requests of any API with as many rows as a request may have: repeated, all different, with long names, null.

Made from kio's description of the schema, in the newest version of each API and in the oldest one.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import typing
import uuid
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, Final, NamedTuple

from kio.serial import entity_writer

from echoless.broker.handlers.apis import APIS
from echoless.protocol.registry import Api
from echoless.protocol.request_fields import ELEMENTS_MAX
from tests.support.kio_requests import smallest_request
from tests.support.raw_batches import plain_batch

GROUP: Final = "group"
"""A group with offsets and members (`walk.py` makes it)."""
TOPIC: Final = "topic"
"""A topic of many partitions."""
LONG: Final = 32_000
_ROOM_BYTES: Final = 3_000_000
"""The size of a request of long names."""
_NAMES: Final = {
    "group_id": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "group_ids": GROUP,
    "key": GROUP,
}
_GROUP_LISTS: Final = frozenset(
    {"delete_groups", "describe_groups", "consumer_group_describe", "find_coordinator"}
)


class Shaped(NamedTuple):
    """One hostile request."""

    api: Api
    version: int
    shape: str
    body: bytes


def requests(names: typing.Collection[str] = (), *, newest: bool = False) -> Iterator[Shaped]:
    """Every API (or those of `names`), in its newest and its oldest version (or the newest), in every shape."""
    for api in APIS:
        if names and api.name not in names:
            continue
        for version in sorted(
            {api.version_max, api.version_max if newest else api.version_min}, reverse=True
        ):
            seen: set[bytes] = set()
            for shape, deep in itertools.product(SHAPES, (False, True)):
                one = shaped(api, version, shape, deep=deep)
                if one.body not in seen:
                    seen.add(one.body)
                    yield one


def sampled(first: int) -> Iterator[Shaped]:
    """One request to every API in its newest version, in each of `SHAPES` in turn; the first API's is number `first`."""
    cases = list(itertools.product(SHAPES, (False, True)))
    for number, api in enumerate(APIS, start=first):
        shape, deep = cases[number % len(cases)]
        yield shaped(api, api.version_max, shape, deep=deep)


def shaped(api: Api, version: int, shape: str, *, deep: bool = False) -> Shaped:
    """A request in one of `SHAPES`; with `deep`, its first row has the many rows inside."""
    entity = SHAPES[shape](smallest_request(api.name, version, elements=1), deep)
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return Shaped(api, version, f"{shape}{' inside' * deep}", out.getvalue())


class _Vary(NamedTuple):
    """How the rows of a request differ."""

    text: Callable[[str, int], str]
    """A field's name and the number of its row -> its text."""
    number: Callable[[int], int]
    """The number of a row -> the number of its partition."""


def _filled(entity: Any, count: int, vary: _Vary, *, deep: bool) -> Any:
    """The entity with `count` elements in its arrays; with `deep`, in those of its first row."""
    arrays = [one for one in dataclasses.fields(entity) if _is_array(one)]
    share = max(1, count // max(1, len(arrays)))
    changes: dict[str, Any] = {}
    for field in arrays:
        values = getattr(entity, field.name)
        if _element(field) is None:
            changes[field.name] = tuple(_varied(field, None, n, vary) for n in range(share))
        elif values:
            changes[field.name] = tuple(_rows(values[0], share, vary, deep=deep))
    return dataclasses.replace(entity, **changes)


def _rows(row: Any, count: int, vary: _Vary, *, deep: bool) -> Iterator[Any]:
    inner = sum(map(_is_array, dataclasses.fields(row)))
    if inner and deep:
        yield _filled(_named(row, 0, vary), count, vary, deep=False)
        return
    for n in range(count // (1 + inner)):
        yield _filled(_named(row, n, vary), inner, vary, deep=False)


def _named(row: Any, n: int, vary: _Vary) -> Any:
    changes = {
        field.name: _varied(field, getattr(row, field.name), n, vary)
        for field in dataclasses.fields(row)
        if not _is_array(field)
    }
    return dataclasses.replace(row, **changes)


_NUMBERED: Final = frozenset(
    {"partition", "partition_index", "index", "partitions", "partition_indexes"}
)


def _varied(field: Any, value: Any, n: int, vary: _Vary) -> Any:
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type == "string":
        return vary.text(field.name, n)
    if kafka_type == "uuid":
        return uuid.UUID(int=vary.number(n) + 1)
    if kafka_type == "records":
        return plain_batch([b"v"]).encode()
    if kafka_type == "int32" and field.name in _NUMBERED:
        return vary.number(n)
    if kafka_type in {"int32", "int16", "int64", "int8"} and value is None:
        return n % 100
    return value


def _is_array(field: Any) -> bool:
    return any(
        typing.get_origin(part) is tuple for part in (field.type, *typing.get_args(field.type))
    )


def _element(field: Any) -> Any:
    parts = list(typing.get_args(field.type))
    parts += [inner for part in parts for inner in typing.get_args(part)]
    return next((part for part in parts if dataclasses.is_dataclass(part)), None)


def _known(name: str, _n: int) -> str:
    return _NAMES.get(name, TOPIC)


def _top(entity: Any, count: int, vary: _Vary, *, deep: bool) -> Any:
    return _filled(_named(entity, 0, vary), count, vary, deep=deep)


def _repeated(entity: Any, deep: bool) -> Any:
    return _top(entity, ELEMENTS_MAX, _Vary(_known, lambda _: 0), deep=deep)


def _many(entity: Any, deep: bool) -> Any:
    return _top(entity, ELEMENTS_MAX, _Vary(lambda _, n: f"x{n}", lambda n: n), deep=deep)


def _existing(entity: Any, deep: bool) -> Any:
    return _top(entity, ELEMENTS_MAX, _Vary(_known, lambda n: n), deep=deep)


def _long(entity: Any, deep: bool) -> Any:
    vary = _Vary(lambda _, n: f"{n:08d}".ljust(LONG, "x"), lambda n: n)
    return _top(entity, _ROOM_BYTES // LONG, vary, deep=deep)


def _null(entity: Any, _deep: bool) -> Any:
    fields = dataclasses.fields(entity)
    nullable = {one.name: None for one in fields if NoneType in typing.get_args(one.type)}
    return dataclasses.replace(entity, **nullable)


SHAPES: Final = {
    "repeated": _repeated,
    "many": _many,
    "existing": _existing,
    "long": _long,
    "null": _null,
}
"""Rows that repeat one name; that have a name of their own each; partitions of one topic that exists; names of 32,000
characters; null wherever the schema allows it."""
