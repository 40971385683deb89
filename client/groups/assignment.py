"""Messages between the members of a group: the topics they want, and the partitions they get.

Pure. The bytes are Kafka's consumer protocol, version 0 of both messages, so that Kafka's tools show the
assignment.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from echoless.protocol.entities import entity_builder
from echoless.protocol.errors import DecodeError

PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = struct.Struct(">h")

Partition = tuple[str, int]


def write_subscription(topics: Iterable[str]) -> bytes:
    """The metadata with which a member joins."""
    return _write(ConsumerProtocolSubscription, {"topics": tuple(topics), "user_data": None})


def read_subscription(data: bytes) -> tuple[str, ...]:
    """The topics. Raises `DecodeError`."""
    return tuple(_read(ConsumerProtocolSubscription, data).topics)


def write_assignment(partitions: Iterable[Partition]) -> bytes:
    """The bytes of one member's assignment."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    rows = [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()]
    return _write(ConsumerProtocolAssignment, {"assigned_partitions": rows, "user_data": None})


def read_assignment(data: bytes) -> list[Partition]:
    """The partitions; no bytes at all are none. Raises `DecodeError`."""
    if not data:
        return []
    rows = _read(ConsumerProtocolAssignment, data).assigned_partitions
    return [(row.topic, index) for row in rows for index in row.partitions]


def assign(
    wishes: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, list[Partition]]:
    """Gives each partition to the member with the fewest that wants its topic.

    `wishes` has the topics of each member, `counts` the partitions of each topic. Equal input has equal output.
    """
    given: dict[str, list[Partition]] = {member: [] for member in sorted(wishes)}
    for topic in sorted(counts):
        takers = [member for member in given if topic in wishes[member]]
        for index in range(counts[topic]) if takers else ():
            least = min(takers, key=lambda member: len(given[member]))
            given[least].append((topic, index))
    return given


def _write(cls: Any, fields: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(_VERSION.pack(0))
    _writer(cls)(out, entity_builder(cls)(fields))
    return out.getvalue()


def _read(cls: Any, data: bytes) -> Any:
    try:
        entity, _ = _reader(cls)(data, _VERSION.size)
    except (SerialError, ValueError, OverflowError) as error:
        raise DecodeError(f"a member's metadata or assignment cannot be read: {error}") from error
    return entity


_writer = functools.cache(entity_writer)
_reader = functools.cache(entity_reader)
