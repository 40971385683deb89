"""The contents of a topic, read back over a broker's native port."""

from __future__ import annotations

from typing import NamedTuple

from echoless.testkit.admin import Admin
from echoless.testkit.native import Native


class StoredRecord(NamedTuple):
    """A record that a topic holds, below the high watermark."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def read_topic(admin: Admin, native: Native, topic: str) -> list[StoredRecord]:
    """Every committed record, by partition and offset; none if there is no such topic.

    Both ports belong to one broker, which has to lead the topic's partitions.
    """
    topics = {one["name"]: one["partitions"] for one in admin.get("/topics")["topics"]}
    return [
        record
        for partition in topics.get(topic, [])
        for record in _read_partition(native, topic, partition)
    ]


def _read_partition(native: Native, topic: str, partition: dict[str, int]) -> list[StoredRecord]:
    index, offset = partition["partition"], partition["log_start_offset"]
    found: list[StoredRecord] = []
    end = partition["high_watermark"]
    while offset < end:
        answer = native.call(
            "fetch", topic=topic, partition=index, offset=offset, max_wait_ms=0, min_bytes=0
        )
        found += [
            StoredRecord(index, record["offset"], record["key"], record["value"])
            for record in answer["records"]
        ]
        offset = answer["next_offset"]
    return found
