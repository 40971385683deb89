"""CreatePartitions, over a real socket: a topic's new total, and who holds what is added."""

from __future__ import annotations

import datetime
from typing import Any

from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.test_create_topics import create, wanted
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, nested

TIMEOUT = datetime.timedelta(seconds=5)


async def extend(
    kafka: RawConnection,
    *topics: tuple[str, int, list[tuple[int, ...]] | None],
    validate_only: bool = False,
) -> list[Any]:
    """Extends by name, new count and the replicas of the new partitions."""
    rows = tuple(
        nested("create_partitions", 3, "CreatePartitionsTopic")(
            name=name,
            count=count,
            assignments=None
            if assignments is None
            else tuple(
                nested("create_partitions", 3, "CreatePartitionsAssignment")(broker_ids=brokers)
                for brokers in assignments
            ),
        )
        for name, count, assignments in topics
    )
    response = await kafka.call(
        "create_partitions", 3, topics=rows, timeout=TIMEOUT, validate_only=validate_only
    )
    return list(response.results)


async def test_partitions_are_added(kafka: RawConnection, running: Running) -> None:
    """The count is the new total; the new partitions lead and take records at once."""
    await create(kafka, wanted("t"), wanted("u"))
    rows = await extend(kafka, ("t", 3, None), ("u", 2, [(1,)]))
    assert [row.error_code for row in rows] == [0, 0]
    partitions = running.broker.partitions
    assert sorted(partitions) == [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)]
    assert all(partition.is_leader for partition in partitions.values())


async def test_partitions_that_cannot_be_added(kafka: RawConnection, running: Running) -> None:
    """Fewer, as many, too many, wrong replicas, a missing topic, a name twice, a validation."""
    await create(kafka, wanted("t", num_partitions=2), wanted("twice"))
    rows = await extend(kafka, ("missing", 5, None), ("twice", 2, None), ("twice", 3, None))
    assert [row.error_code for row in rows] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    for count, assignments, code in (
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (2**31 - 1, None, ErrorCode.INVALID_PARTITIONS),
        (4, [(1,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [(1, 2)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [(9,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ):
        (row,) = await extend(kafka, ("t", count, assignments))
        assert row.error_code == code
        assert row.error_message
    (validated,) = await extend(kafka, ("t", 4, None), validate_only=True)
    assert validated.error_code == 0
    assert running.broker.registry.topics["t"].partition_count == 2
