"""A follower's fetch as followers of this version send it, its fields in this order.

Equals `locate_fields` with `ReplicaFetch.read`, which read what is not known, and say what is wrong with it.
`tests/protocol/known/test_replica_fetch.py` compares both. Called by `broker/native/exchange.py`.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import msgpack

from echoless.protocol.framing import Frame
from echoless.protocol.native.answers import INT64_MAX
from echoless.protocol.native.codec import ENTRIES_MAX, RECORD_FIELDS_MAX
from echoless.protocol.native.replication import (
    INT32_MAX,
    INT64_MIN,
    WAIT_MS_MAX,
    ReplicaFetch,
    ReplicaWanted,
)

READ_AT_ONCE_BYTES: Final = 32 * 1024
"""Size limit of a fetch that is read on the event loop: about 400 partitions."""
_TYPE: Final = "replica_fetch"
_NAMES: Final = (
    "type",
    "broker_id",
    "broker_epoch",
    "max_wait_ms",
    "min_bytes",
    "bytes_max",
    "partitions",
    "correlation_id",
)
BEGINNING: Final = bytes((0x80 + len(_NAMES),)) + msgpack.packb("type") + msgpack.packb(_TYPE)
"""The first bytes of a usual fetch: of other messages there is no need to ask."""
BEGINNING_SIZE: Final = len(BEGINNING)
_fields: Final = itemgetter(*_NAMES)
_row_fields: Final = itemgetter(*ReplicaWanted._fields)
_UUID_SIZE: Final = 16


def read_usual_replica_fetch(frame: Frame) -> tuple[int, ReplicaFetch] | None:
    """`(correlation id, message)`; None if it is another one, a large one, or not as followers send it."""
    if (
        type(frame) is not bytes
        or len(frame) > READ_AT_ONCE_BYTES
        or not frame.startswith(BEGINNING)
    ):
        return None
    try:
        fields = msgpack.unpackb(
            frame, max_array_len=ENTRIES_MAX, max_map_len=RECORD_FIELDS_MAX, max_ext_len=0
        )
        # As many names as fields, and each of them is there: so none is there twice.
        _, broker_id, broker_epoch, max_wait_ms, min_bytes, bytes_max, rows, number = _fields(
            fields
        )
        partitions = [read_row(row) for row in rows]
    except (msgpack.UnpackException, ValueError, KeyError, TypeError):
        return None
    if (
        type(rows) is list
        and type(broker_id) is type(broker_epoch) is type(number) is int
        and type(max_wait_ms) is type(min_bytes) is type(bytes_max) is int
        and 0 <= broker_id <= INT32_MAX
        and INT64_MIN <= broker_epoch <= INT64_MAX
        and 0 <= max_wait_ms <= WAIT_MS_MAX
        and 0 <= min_bytes <= INT32_MAX
        and 1 <= bytes_max <= INT32_MAX
    ):
        return number, ReplicaFetch(
            broker_id, broker_epoch, max_wait_ms, min_bytes, bytes_max, partitions
        )
    return None


def read_row(row: Any) -> ReplicaWanted:
    """One partition. Raises `ValueError`, `KeyError` or `TypeError` if it is not as it should be."""
    topic, topic_id, partition, leader_epoch, offset, last_epoch = _row_fields(row)
    if (
        type(topic) is str
        and type(topic_id) is bytes
        and len(topic_id) == _UUID_SIZE
        and type(partition) is type(leader_epoch) is type(offset) is type(last_epoch) is int
        and 0 <= partition <= INT32_MAX
        and 0 <= leader_epoch <= INT32_MAX
        and 0 <= offset <= INT64_MAX
        and -1 <= last_epoch <= INT32_MAX
    ):
        return ReplicaWanted(
            topic, _topic_id(topic_id), partition, leader_epoch, offset, last_epoch
        )
    raise ValueError("not the usual row")


@lru_cache(maxsize=1024)
def _topic_id(data: bytes) -> uuid.UUID:
    """Nearly always the same few, which take longer to make than to find."""
    return uuid.UUID(bytes=data)
