"""The records of `__transaction_state`: a transactional id, and what is known of it. Values 0 and 1 are read, 1 is written.

Key: version 0, transactional id. Value, after the version: producer id i64, producer epoch i16, timeout i32, status i8,
partitions? (null if Empty: topic, indexes i32), time of the last update i64, of the start i64. Version 1 is flexible; its
tagged fields are in `_TAGS`. Those from 10000 on are Echoless's own, and Kafka skips them.
"""

from __future__ import annotations

import enum
import struct
import uuid
from collections.abc import Iterable
from functools import lru_cache
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

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_START: Final = -1
NO_TOPIC_ID: Final = bytes(16)

_KEY_VERSION: Final = 0
_WRITTEN: Final = INT16.pack(1)
_VERSION_MAX: Final = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
_NUMBER, _LAST_EPOCH, _ENDED, _TWO_PHASE, _KEPT_EPOCH = range(10_000, 10_005)
_TOPIC_ID: Final = 10_000
"""A tag of a topic."""
_TAG_BYTES: Final = {
    tag: write_unsigned_varint(tag)
    for tag in (
        *(_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NUMBER, _LAST_EPOCH, _ENDED),
        *(_TWO_PHASE, _KEPT_EPOCH, _TOPIC_ID),
    )
}


class TransactionStatus(enum.IntEnum):
    """The state of a transactional id, as it is stored. Kafka never stores 6 (Dead) and 7 (PrepareEpochFence)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided, and markers may be missing."""
        return self in _PREPARED

    @property
    def is_complete(self) -> bool:
        """Whether a transaction has ended, and nothing has happened since."""
        return self in _COMPLETE


_PREPARED: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
_COMPLETE: Final = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


class TransactionEnd(enum.IntEnum):
    """The result of a transaction, and who decided it."""

    COMMITTED = 0
    ABORTED = 1
    """By its own producer."""
    TIMED_OUT = 2
    """Aborted by the coordinator; the session may go on."""
    FENCED = 3
    """Aborted for a new instance; the session is over."""


class EndedTransaction(NamedTuple):
    """The producer id and epoch of the session that a transaction belonged to, and its result."""

    producer_id: int
    producer_epoch: int
    end: TransactionEnd


class TransactionPartition(NamedTuple):
    """A partition in a transaction. A topic that was deleted and created again has other partitions."""

    topic: str
    partition: int
    topic_id: bytes = NO_TOPIC_ID


@lru_cache(maxsize=1024)
def uuid_of(topic_id: bytes) -> uuid.UUID:
    """The id of a topic, by its 16 bytes. Making one takes 2 us, and each marker needs it."""
    return uuid.UUID(bytes=topic_id)


class TransactionValue(NamedTuple):
    """All that is stored of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus
    partitions: frozenset[TransactionPartition] = frozenset()
    update_ms: int = 0
    """Wall clock of the last change; ids expire by it."""
    start_ms: int = NO_START
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id from the end of this transaction on, because no epochs are left."""
    client_version: int = 0
    """The generation of the protocol in which the client asked for the last change: 0, or 2 (KIP-890)."""
    number: int = 0
    """Counts the transactions of the id. A marker carries it, so that a late one cannot end the next transaction."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the current one, if the same session had it: it may ask for the current one again."""
    ended: EndedTransaction | None = None
    """The transaction that ended last, or whose end is decided. None if it is not known, as in records of Kafka."""
    is_two_phase: bool = False
    """Whether an external coordinator ends the session's transactions (KIP-939): they have no timeout."""
    kept_epoch: int = NO_PRODUCER_EPOCH
    """The epoch of the session that wrote the open transaction, if a later one has kept it; that one can only end it."""


def write_transaction_key(transactional_id: str) -> bytes:
    """Packs version 0, the only one."""
    return INT16.pack(_KEY_VERSION) + pack_string(transactional_id)


def read_transaction_key(data: bytes) -> str | int:
    """Reads a transactional id; of another type of record its number. Raises `DecodeError`."""
    reader = FieldReader(data)
    version = reader.int16()
    return reader.string() if version == _KEY_VERSION else version


def write_transaction_value(value: TransactionValue) -> bytes:
    """Packs version 1."""
    return b"".join(
        (
            *(_WRITTEN, INT64.pack(value.producer_id), INT16.pack(value.producer_epoch)),
            *(INT32.pack(value.timeout_ms), INT8.pack(value.status)),
            b"\x00" if value.status is TransactionStatus.EMPTY else _pack_topics(value.partitions),
            *(INT64.pack(value.update_ms), INT64.pack(value.start_ms)),
            _pack_tags(_tags(value)),
        )
    )


def _tags(value: TransactionValue) -> Iterable[tuple[int, bytes]]:
    """The tagged fields that do not have their default, in the order of their tags."""
    if value.previous_producer_id != NO_PRODUCER_ID:
        yield _PREVIOUS_ID, INT64.pack(value.previous_producer_id)
    if value.next_producer_id != NO_PRODUCER_ID:
        yield _NEXT_ID, INT64.pack(value.next_producer_id)
    if value.client_version:
        yield _CLIENT_VERSION, INT16.pack(value.client_version)
    if value.number:
        yield _NUMBER, INT64.pack(value.number)
    if value.last_epoch != NO_PRODUCER_EPOCH:
        yield _LAST_EPOCH, INT16.pack(value.last_epoch)
    if value.ended is not None:
        producer_id, epoch, end = value.ended
        yield _ENDED, INT64.pack(producer_id) + INT16.pack(epoch) + INT8.pack(end)
    if value.is_two_phase:
        yield _TWO_PHASE, INT8.pack(1)
    if value.kept_epoch != NO_PRODUCER_EPOCH:
        yield _KEPT_EPOCH, INT16.pack(value.kept_epoch)


def _pack_topics(partitions: Iterable[TransactionPartition]) -> bytes:
    indexes_of: dict[tuple[str, bytes], list[int]] = {}
    for topic, index, topic_id in partitions:
        indexes_of.setdefault((topic, topic_id), []).append(index)
    parts = [pack_size(len(indexes_of), flexible=True)]
    for (topic, topic_id), indexes in sorted(indexes_of.items()):
        parts += pack_string(topic, flexible=True), pack_size(len(indexes), flexible=True)
        parts.append(struct.pack(f">{len(indexes)}i", *sorted(indexes)))
        parts.append(NO_TAGS if topic_id == NO_TOPIC_ID else _pack_tags([(_TOPIC_ID, topic_id)]))
    return b"".join(parts)


def _pack_tags(tags: Iterable[tuple[int, bytes]]) -> bytes:
    packed = [_TAG_BYTES[tag] + bytes((len(field),)) + field for tag, field in tags]
    return b"".join((bytes((len(packed),)), *packed))  # sizes and counts are varints of one byte


def read_transaction_value(data: bytes) -> TransactionValue:
    """Reads a value. Raises `DecodeError`."""
    _, reader = open_value(
        data, "a transactional id", version_max=_VERSION_MAX, flexible_from=_VERSION_MAX
    )
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    status = _read_status(reader.int8())
    topics = reader.nullable_array(_read_topic) or ()
    update_ms, start_ms = reader.int64(), reader.int64()
    tags = {tag: FieldReader(field) for tag, field in reader.tag_buffer().items()}
    return TransactionValue(
        *(producer_id, epoch, timeout_ms, status),
        frozenset([partition for topic in topics for partition in topic]),
        *(update_ms, start_ms),
        tags[_PREVIOUS_ID].int64() if _PREVIOUS_ID in tags else NO_PRODUCER_ID,
        tags[_NEXT_ID].int64() if _NEXT_ID in tags else NO_PRODUCER_ID,
        tags[_CLIENT_VERSION].int16() if _CLIENT_VERSION in tags else 0,
        tags[_NUMBER].int64() if _NUMBER in tags else 0,
        tags[_LAST_EPOCH].int16() if _LAST_EPOCH in tags else NO_PRODUCER_EPOCH,
        _read_ended(tags[_ENDED]) if _ENDED in tags else None,
        _TWO_PHASE in tags and bool(tags[_TWO_PHASE].int8()),
        tags[_KEPT_EPOCH].int16() if _KEPT_EPOCH in tags else NO_PRODUCER_EPOCH,
    )


def _read_topic(reader: FieldReader) -> list[TransactionPartition]:
    topic, indexes = reader.string(), reader.array(FieldReader.int32)
    topic_id = reader.tag_buffer().get(_TOPIC_ID, NO_TOPIC_ID)
    return [TransactionPartition(topic, index, topic_id) for index in indexes]


def _read_status(number: int) -> TransactionStatus:
    try:
        return TransactionStatus(number)
    except ValueError as error:
        raise DecodeError(f"a transactional id in state {number}, which is not known") from error


def _read_ended(reader: FieldReader) -> EndedTransaction:
    producer_id, epoch, end = reader.int64(), reader.int16(), reader.int8()
    try:
        return EndedTransaction(producer_id, epoch, TransactionEnd(end))
    except ValueError as error:
        raise DecodeError(f"a transaction with result {end}, which is not known") from error
