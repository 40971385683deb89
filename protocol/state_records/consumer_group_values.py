"""The values of a group of the consumer protocol (KIP-848), version 0 of each, all flexible.

* epoch (key 3): epoch i32; tag 0: hash of the subscribed topics i64
* member (5): instance id?, rack?, client id, client host, topic names, regular expression?, rebalance timeout i32,
  assignor?; tag 0: metadata of the classic protocol, which no group that is served here has
* target epoch (6): epoch i32
* target (7): partitions
* current assignment (8): epoch i32, previous epoch i32, state i8, assigned partitions, partitions to revoke
* regular expression (16): topics, version i64, timestamp i64

Partitions: an array of topic id (16 bytes) and indexes i32; with tag 0, in a current assignment: for each partition
the epoch in which it was assigned (KIP-1251).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.headers import NO_TAGS, write_unsigned_varint
from echoless.protocol.state_records.fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    FieldReader,
    open_value,
    pack_size,
    pack_string,
)

TopicIdPartition = tuple[bytes, int]
"""The 16 bytes of a topic's id, and a partition of it."""

_VERSION: Final = INT16.pack(0)
_TOPIC_ID_BYTES: Final = 16
_HASH_TAG: Final = 0
_EPOCHS_TAG: Final = 0
_NO_HASH: Final = 0


class ConsumerMemberState(enum.IntEnum):
    """Progress of a member towards its target."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """Has to give up partitions first."""
    UNRELEASED_PARTITIONS = 2
    """Others still have partitions that it is to get."""


class EpochValue(NamedTuple):
    epoch: int
    metadata_hash: int = _NO_HASH
    """The hash of the subscribed topics; 0 if it is not known."""


class MemberValue(NamedTuple):
    """A member, as it has asked for."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    """In order, each once."""
    topic_regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None


class TargetEpochValue(NamedTuple):
    epoch: int


class TargetValue(NamedTuple):
    partitions: frozenset[TopicIdPartition]


class CurrentValue(NamedTuple):
    """A member's epoch and partitions. The mappings are never changed."""

    epoch: int
    previous_epoch: int
    state: ConsumerMemberState
    assigned: Mapping[TopicIdPartition, int]
    """With the epoch in which it was assigned to this member."""
    pending: Mapping[TopicIdPartition, int]
    """Partitions that it has to give up."""


class RegexValue(NamedTuple):
    """The topics that a regular expression matched."""

    topics: tuple[str, ...]
    """In order."""
    version: int
    timestamp: int


ConsumerValue = (
    EpochValue | MemberValue | TargetEpochValue | TargetValue | CurrentValue | RegexValue
)


def _begin(data: bytes) -> FieldReader:
    _, reader = open_value(data, "a record of a consumer group", version_max=0, flexible_from=0)
    return reader


def read_epoch(data: bytes) -> EpochValue:
    """Reads a value. Raises `DecodeError`, as all of these do."""
    reader = _begin(data)
    epoch = reader.int32()
    hashed = reader.tag_buffer().get(_HASH_TAG)
    return EpochValue(epoch, _NO_HASH if hashed is None else FieldReader(hashed).int64())


def read_member(data: bytes) -> MemberValue:
    """Reads a value; metadata of the classic protocol is skipped."""
    reader = _begin(data)
    value = MemberValue(
        reader.nullable_string(),
        reader.nullable_string(),
        reader.string(),
        reader.string(),
        tuple(sorted(set(reader.array(FieldReader.string)))),
        reader.nullable_string() or None,
        reader.int32(),
        reader.nullable_string(),
    )
    reader.tag_buffer()
    return value


def read_target_epoch(data: bytes) -> TargetEpochValue:
    """Reads a value."""
    return TargetEpochValue(_begin(data).int32())


def read_target(data: bytes) -> TargetValue:
    """Reads a value."""
    return TargetValue(frozenset(_read_partitions(_begin(data), 0)))


def read_current(data: bytes) -> CurrentValue:
    """Reads a value. Kafka before 4.3 stores no epoch for a partition: it was assigned in any up to the member's."""
    reader = _begin(data)
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    try:
        known = ConsumerMemberState(state)
    except ValueError as error:
        raise DecodeError(f"a member in state {state}, which is not known") from error
    assigned = _read_partitions(reader, epoch)
    return CurrentValue(epoch, previous_epoch, known, assigned, _read_partitions(reader, epoch))


def read_regex(data: bytes) -> RegexValue:
    """Reads a value."""
    reader = _begin(data)
    return RegexValue(reader.array(FieldReader.string), reader.int64(), reader.int64())


def _read_partitions(reader: FieldReader, epoch: int) -> dict[TopicIdPartition, int]:
    found: dict[TopicIdPartition, int] = {}
    for topic_id, indexes, epochs in reader.array(_read_topic):
        for place, index in enumerate(indexes):
            found[topic_id, index] = epochs[place] if place < len(epochs) else epoch
    return found


def _read_topic(reader: FieldReader) -> tuple[bytes, tuple[int, ...], tuple[int, ...]]:
    topic_id = reader.raw(_TOPIC_ID_BYTES)
    indexes = reader.array(FieldReader.int32)
    epochs = reader.tag_buffer().get(_EPOCHS_TAG)
    if epochs is None:
        return topic_id, indexes, ()
    return topic_id, indexes, FieldReader(epochs, flexible=True).array(FieldReader.int32)


def write_consumer_value(value: ConsumerValue) -> bytes:
    """Packs version 0 of any of the values."""
    match value:
        case EpochValue():
            fields = [INT32.pack(value.epoch), _hash_tag(value.metadata_hash)]
        case TargetEpochValue():
            fields = [INT32.pack(value.epoch), NO_TAGS]
        case TargetValue():
            fields = [_partitions(value.partitions), NO_TAGS]
        case CurrentValue():
            fields = [
                INT32.pack(value.epoch) + INT32.pack(value.previous_epoch) + INT8.pack(value.state),
                _partitions(value.assigned, value.assigned),
                _partitions(value.pending, value.pending),
                NO_TAGS,
            ]
        case RegexValue():
            times = INT64.pack(value.version) + INT64.pack(value.timestamp)
            fields = [_strings(value.topics), times, NO_TAGS]
        case MemberValue():
            fields = _member_fields(value)
    return b"".join((_VERSION, *fields))


def _member_fields(value: MemberValue) -> list[bytes]:
    return [
        pack_string(value.instance_id, flexible=True),
        pack_string(value.rack_id, flexible=True),
        pack_string(value.client_id, flexible=True),
        pack_string(value.client_host, flexible=True),
        _strings(value.topic_names),
        pack_string(value.topic_regex or "", flexible=True),
        INT32.pack(value.rebalance_timeout_ms),
        pack_string(value.assignor, flexible=True),
        NO_TAGS,
    ]


def _hash_tag(metadata_hash: int) -> bytes:
    if metadata_hash == _NO_HASH:
        return NO_TAGS
    return _one_tag(_HASH_TAG, INT64.pack(metadata_hash))


def _one_tag(tag: int, data: bytes) -> bytes:
    sizes = (write_unsigned_varint(number) for number in (1, tag, len(data)))
    return b"".join((*sizes, data))


def _strings(names: tuple[str, ...]) -> bytes:
    packed = [pack_string(name, flexible=True) for name in names]
    return b"".join((pack_size(len(names), flexible=True), *packed))


def _partitions(
    partitions: Iterable[TopicIdPartition], epochs: Mapping[TopicIdPartition, int] | None = None
) -> bytes:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    parts = [pack_size(len(by_topic), flexible=True)]
    for topic_id, indexes in by_topic.items():
        tags = NO_TAGS
        if epochs is not None:
            tags = _one_tag(_EPOCHS_TAG, _int32s([epochs[topic_id, one] for one in indexes]))
        parts += (topic_id, _int32s(indexes), tags)
    return b"".join(parts)


def _int32s(numbers: list[int]) -> bytes:
    return pack_size(len(numbers), flexible=True) + b"".join(map(INT32.pack, numbers))
