"""The contents of a topic, read back over a broker's native port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.testkit.admin import Admin
from echoless.testkit.native import Native, NativeError

_UNKNOWN: Final = -1
"""The high watermark as a broker answers a client that has to pause because of its quota."""


class StoredRecord(NamedTuple):
    """A record that a topic holds, below the high watermark."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def read_topic(native: Native, topic: str, admin: Callable[[], Admin]) -> list[StoredRecord]:
    """Every committed record, by partition and offset; none if there is no such topic.

    Both ports belong to one broker, which has to lead the topic's partitions. The admin port is asked only about logs
    that no longer begin at 0: a broker's first answer there takes it longer than its start.
    """
    (found,) = native.call("metadata", topics=[topic])["topics"]
    indexes = sorted(one["partition_index"] for one in found["partitions"])
    return [record for index in indexes for record in _read_partition(native, topic, index, admin)]


def _read_partition(
    native: Native, topic: str, partition: int, admin: Callable[[], Admin]
) -> list[StoredRecord]:
    offset, end, found = 0, _UNKNOWN, []
    while end == _UNKNOWN or offset < end:
        try:
            answer = _fetch(native, topic, partition, offset)
        except NativeError as error:
            if offset or error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            offset = _log_start(admin(), topic, partition)
        else:
            found += answer["records"]
            offset = answer["next_offset"]
            end = answer["high_watermark"] if end == _UNKNOWN else end
    return [StoredRecord(partition, one["offset"], one["key"], one["value"]) for one in found]


def _fetch(native: Native, topic: str, partition: int, offset: int) -> dict[str, Any]:
    return native.call(
        "fetch", topic=topic, partition=partition, offset=offset, max_wait_ms=0, min_bytes=0
    )


def _log_start(admin: Admin, topic: str, partition: int) -> int:
    (found,) = (one for one in admin.get("/topics")["topics"] if one["name"] == topic)
    (row,) = (one for one in found["partitions"] if one["partition"] == partition)
    start: int = row["log_start_offset"]
    return start
