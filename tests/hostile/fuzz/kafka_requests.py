"""Requests of the Kafka port, written field by field from kio's description of their schema."""

from __future__ import annotations

import dataclasses
import random
import struct
import typing
import uuid
from collections.abc import Sequence
from types import NoneType
from typing import Any

from echoless.broker.handlers.apis import APIS
from echoless.protocol.registry import Api
from tests.hostile.fuzz.values import Values, mutated
from tests.hostile.target import header
from tests.support.raw_client import message
from tests.support.raw_produce import unsigned_varint

VERSIONS = tuple(
    (api, version) for api in APIS for version in range(api.version_min, api.version_max + 1)
)
_INTEGERS = {
    "int8": (8, ">b"),
    "int16": (16, ">h"),
    "int32": (32, ">i"),
    "int64": (64, ">q"),
    "timedelta_i32": (32, ">i"),
    "timedelta_i64": (64, ">q"),
}
_CLAIMS = (2**31 - 1, 100_001, 1000, -2, -(2**31))
_RATES = (0.0, 0.02, 0.1, 0.4)


def kafka_request(rng: random.Random, number: int, topic_ids: Sequence[uuid.UUID]) -> bytes:
    """A frame without its length. All APIs and versions take turns with `number`."""
    values = Values(rng, topic_ids, rng.choice(_RATES))
    api, version = VERSIONS[number % len(VERSIONS)]
    if rng.random() < 0.02:
        return _not_served(rng, api)
    start = header(api.key, version, b"fuzz", flexible=api.is_flexible(version))
    body = _Body(values, flexible=api.is_flexible(version))
    data = body.entity(message(api.name, version, "Request"))
    if rng.random() < 0.15:
        data = mutated(rng, data)
    return start + data if rng.random() < 0.98 else mutated(rng, start + data)


def _not_served(rng: random.Random, api: Api) -> bytes:
    key = rng.choice((api.key, api.key, -1, 999, 4, 2**15 - 1))
    version = rng.choice((api.version_min - 1, api.version_max + 1, -1, 2**15 - 1, -(2**15)))
    return header(key, version, b"fuzz", flexible=rng.random() < 0.5) + rng.randbytes(20)


class _Body:
    def __init__(self, values: Values, *, flexible: bool) -> None:
        self._values = values
        self._flexible = flexible

    def entity(self, cls: Any) -> bytes:
        fields = dataclasses.fields(cls)
        parts = [self._field(cls, one) for one in fields if "tag" not in one.metadata]
        if self._flexible:
            parts.append(self._tags(cls, [one for one in fields if "tag" in one.metadata]))
        return b"".join(parts)

    def _tags(self, cls: Any, known: Sequence[dataclasses.Field[Any]]) -> bytes:
        values = self._values
        tagged = [
            (int(one.metadata["tag"]), self._field(cls, one))
            for one in known
            if values.rng.random() < 0.5
        ]
        if values.is_hostile():
            tagged.append((values.rng.choice((5, 99, 2**31)), values.rng.randbytes(3)))
        parts = [unsigned_varint(len(tagged) + 70 * (values.is_hostile() and values.is_hostile()))]
        for tag, data in tagged:
            size = len(data) + values.rng.choice((0, 0, 0, 1, -1)) * values.is_hostile()
            parts += [unsigned_varint(tag), unsigned_varint(max(size, 0)), data]
        return b"".join(parts)

    def _field(self, cls: Any, one: dataclasses.Field[Any]) -> bytes:
        annotations = _parts(one.type)
        nested = next((part for part in annotations if dataclasses.is_dataclass(part)), None)
        name = one.name
        if "Config" in cls.__name__ and name == "name":
            name = "configs.name"
        if any(typing.get_origin(part) is tuple for part in annotations):
            return self._array(one, name, nested)
        return self.entity(nested) if nested else self._primitive(one, name)

    def _array(self, one: dataclasses.Field[Any], name: str, nested: Any) -> bytes:
        values = self._values
        is_nullable = NoneType in typing.get_args(one.type)
        if values.is_hostile() or (is_nullable and values.rng.random() < 0.2):
            return self._count(-1)
        claimed = count = values.rng.choice((0, 1, 1, 1, 2, 5))
        if values.is_hostile():
            claimed = values.rng.choice(_CLAIMS)
        elements = (
            self.entity(nested) if nested else self._primitive(one, name) for _ in range(count)
        )
        return self._count(claimed) + b"".join(elements)

    def _count(self, count: int) -> bytes:
        return self._size(count) if self._flexible else struct.pack(">i", count)

    def _size(self, size: int) -> bytes:
        return unsigned_varint((size + 1) % 2**32)

    def _primitive(self, one: dataclasses.Field[Any], name: str) -> bytes:
        values, kafka_type = self._values, one.metadata["kafka_type"]
        if kafka_type in _INTEGERS:
            bits, layout = _INTEGERS[kafka_type]
            return struct.pack(layout, values.integer(name, bits))
        if kafka_type == "bool":
            return values.rng.choice((b"\0", b"\1", b"\1", b"\x7f"))
        if kafka_type == "uuid":
            return values.topic_id().bytes
        may_be_null = NoneType in typing.get_args(one.type) and values.rng.random() < 0.3
        data = values.batch() if kafka_type == "records" else values.text(name).encode()
        size = len(data)
        if values.is_hostile():
            data = values.rng.randbytes(values.rng.randint(0, 40))
            size = values.rng.choice((len(data), len(data), 2**15 - 1, -2))
        if may_be_null or values.is_hostile():
            data, size = b"", -1
        if self._flexible:
            return self._size(size) + data
        layout = ">h" if kafka_type == "string" else ">i"
        return struct.pack(layout, size) + data


def _parts(annotation: Any) -> list[Any]:
    return [annotation, *(part for inner in typing.get_args(annotation) for part in _parts(inner))]
