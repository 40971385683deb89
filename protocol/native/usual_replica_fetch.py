"""A follower's usual fetch read at a glance, and its answer packed by hand.

A leader reads and answers such a message for every few requests of its producers. Field by field that took as long
as all the rest of the fetch. The glance accepts what `locate_fields` and `ReplicaFetch.read` accept, and gives the
same message; of anything else it knows nothing, and those say what is wrong with it.

Called by `broker/native/exchange.py`. Pure.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgpack

from echoless.protocol.framing import Frame
from echoless.protocol.native.answers import INT64_MAX
from echoless.protocol.native.codec import ENTRIES_MAX, PACKED_BYTES_MAX, RECORD_FIELDS_MAX
from echoless.protocol.native.replication import (
    INT32_MAX,
    INT64_MIN,
    WAIT_MS_MAX,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaWanted,
)

READ_AT_ONCE_BYTES: Final = 32 * 1024
"""How large a fetch may be to be read on the event loop: about 400 partitions."""
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
_new: Final = tuple.__new__
"""Makes a named tuple in a third of the time of calling its class."""


class UsualReplicaFetch(NamedTuple):
    """A message that was read at a glance."""

    correlation_id: int
    message: ReplicaFetch


def read_usual_replica_fetch(frame: Frame) -> UsualReplicaFetch | None:
    """The message; None if it is another one, a large one, or not as followers send it."""
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
        partitions = [_read_row(row) for row in rows]
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
        values = (broker_id, broker_epoch, max_wait_ms, min_bytes, bytes_max, partitions)
        message = _new(ReplicaFetch, values)
        return _new(UsualReplicaFetch, (number, message))
    return None


def _read_row(row: Any) -> ReplicaWanted:
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
        values = (topic, _topic_id(topic_id), partition, leader_epoch, offset, last_epoch)
        return _new(ReplicaWanted, values)
    raise ValueError("not the usual row")


@lru_cache(maxsize=1024)
def _topic_id(data: bytes) -> uuid.UUID:
    """Nearly always the same few, which take longer to make than to find."""
    return uuid.UUID(bytes=data)


# --- the answer ---

_HEAD: Final = b"".join((b"\x84", *map(msgpack.packb, ("type", _TYPE, "correlation_id"))))
_SUCCEEDED: Final = b"".join(
    map(
        msgpack.packb,
        ("error", {"code": 0, "name": "NONE", "message": "", "retriable": False}, "partitions"),
    )
)
_ERROR: Final = b"\x85" + msgpack.packb("error") + b"\xd1"
_HIGH_WATERMARK: Final = msgpack.packb("high_watermark") + b"\xd3"
_LOG_START: Final = msgpack.packb("log_start_offset") + b"\xd3"
_BATCHES: Final = msgpack.packb("diverging") + b"\xc0" + msgpack.packb("batches") + b"\xc6"
_pack_row: Final = struct.Struct(
    f">{len(_ERROR)}sh{len(_HIGH_WATERMARK)}sq{len(_LOG_START)}sq{len(_BATCHES)}sI"
).pack
_ARRAY: Final = struct.Struct(">BI")


class ReplicaFetchAnswer(NamedTuple):
    """The rows of an answer, in the order of the message."""

    fetched: Sequence[ReplicaFetched]

    def packed(self, correlation_id: int | None) -> tuple[bytes, ...]:
        """The bytes of the answer, without its length prefix; large batches are buffers of their own."""
        count = _ARRAY.pack(0xDD, len(self.fetched))
        packed = [_HEAD, msgpack.packb(correlation_id), _SUCCEEDED, count]
        buffers: list[bytes] = []
        for one in self.fetched:
            error, high_watermark, log_start_offset, diverging, batches = one
            if diverging is not None:
                packed.append(msgpack.packb(one.to_entry()))
                continue
            size = len(batches)
            packed.append(
                _pack_row(
                    *(_ERROR, error, _HIGH_WATERMARK, high_watermark),
                    *(_LOG_START, log_start_offset, _BATCHES, size),
                )
            )
            if size > PACKED_BYTES_MAX:
                buffers += (b"".join(packed), batches)
                packed = []
            else:
                packed.append(batches)
        buffers.append(b"".join(packed))
        return tuple(buffers)
