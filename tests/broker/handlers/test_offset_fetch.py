"""OffsetFetch: no group has committed anything, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.offset_fetch import API
from tests.support.raw_client import RawConnection, nested

VERSIONS = range(API.version_min, API.version_max + 1)
GROUPS_FROM = 8


async def committed(
    kafka: RawConnection, version: int, partitions: tuple[int, ...] | None
) -> list[tuple[Any, ...]]:
    """(Topic, partition, offset, metadata, code) of each row; None requests all topics."""
    kind = "OffsetFetchRequestTopic" if version < GROUPS_FROM else "OffsetFetchRequestTopics"
    topics = None
    if partitions is not None:
        topics = (nested("offset_fetch", version, kind)(name="t", partition_indexes=partitions),)
    fields: dict[str, Any] = {"group_id": "g", "topics": topics}
    if version >= GROUPS_FROM:
        group = nested("offset_fetch", version, "OffsetFetchRequestGroup")(**fields)
        fields = {"groups": (group,)}
    if version >= 7:
        fields["require_stable"] = False
    response = await kafka.call("offset_fetch", version, **fields)
    if version >= GROUPS_FROM:
        (response,) = response.groups
        assert response.group_id == "g"
    return [
        (topic.name, row.partition_index, row.committed_offset, row.metadata, row.error_code)
        for topic in response.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_offset_was_ever_committed(kafka: RawConnection, version: int) -> None:
    """-1 for each partition, whether or not it exists; version 2 and later may ask for all: none."""
    assert await committed(kafka, version, (3, 0)) == [("t", 3, -1, "", 0), ("t", 0, -1, "", 0)]
    if version >= 2:
        assert await committed(kafka, version, None) == []
