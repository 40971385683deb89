"""ListPartitionReassignments, over a real socket: only what is moving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echoless.broker.metadata.node_data import Reassignment
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested
from tests.support.relocation import relocate

LIST = "list_partition_reassignments"


async def listed(
    kafka: RawConnection, partitions: Mapping[str, tuple[int, ...]] | None
) -> list[tuple[Any, ...]]:
    """(Topic, partition, replicas, adding, removing) of what is moving; None: of all topics."""
    topics = None
    if partitions is not None:
        topics = tuple(
            nested(LIST, 0, "ListPartitionReassignmentsTopics")(
                name=name, partition_indexes=numbers
            )
            for name, numbers in partitions.items()
        )
    response = await kafka.call(LIST, 0, topics=topics)
    assert response.error_code == ErrorCode.NONE
    return [
        (topic.name, row.partition_index, row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in response.topics
        for row in topic.partitions
    ]


async def test_only_moving_partitions_are_listed(kafka: RawConnection, running: Running) -> None:
    """With the replicas they have, gain and lose; partitions that do not move or exist are left out."""
    await create_topic(kafka, "t", 2)
    assert await listed(kafka, None) == []
    await relocate(
        running.broker.registry, "t", 0, (2, 1), Reassignment(adding=(2,), removing=(1,))
    )
    moving = ("t", 0, (2, 1), (2,), (1,))
    assert await listed(kafka, None) == [moving]
    assert await listed(kafka, {"t": (0, 1, 7), "missing": (0,)}) == [moving]
    assert await listed(kafka, {"t": (1,)}) == []
