"""AlterPartitionReassignments, over a real socket: moves that begin, end and are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from echoless.broker.metadata.node_data import Reassignment
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.test_elect_leaders import add_broker, controlled, set_state
from tests.broker.handlers.test_list_partition_reassignments import listed
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested
from tests.support.relocation import relocate

ALTER = "alter_partition_reassignments"


async def reassign(
    kafka: RawConnection, topic: str, partition: int, replicas: tuple[int, ...] | None
) -> Any:
    """The row of one partition."""
    return (await reassign_all(kafka, topic, [(partition, replicas)]))[0]


async def reassign_all(
    kafka: RawConnection, topic: str, rows: Sequence[tuple[int, tuple[int, ...] | None]]
) -> Any:
    """The rows of the answer."""
    partition = nested(ALTER, 0, "ReassignablePartition")
    partitions = tuple(partition(partition_index=one, replicas=replicas) for one, replicas in rows)
    wanted = nested(ALTER, 0, "ReassignableTopic")(name=topic, partitions=partitions)
    response = await kafka.call(ALTER, 0, topics=(wanted,))
    assert response.error_code == ErrorCode.NONE
    return response.responses[0].partitions


@pytest.fixture(autouse=True)
async def _topic(kafka: RawConnection) -> None:
    await create_topic(kafka, "t", 2)


async def test_a_move_is_noted_and_listed(kafka: RawConnection, running: Running) -> None:
    """With all replicas that the partition has meanwhile."""
    await add_broker(running, 2)
    assert (await reassign(kafka, "t", 0, (2,))).error_code == ErrorCode.NONE
    topic = running.broker.registry.topics["t"]
    assert topic.assignment[0] == (2, 1)
    assert topic.reassignments == {0: Reassignment(adding=(2,), removing=(1,))}
    assert await listed(kafka, None) == [("t", 0, (2, 1), (2,), (1,))]


async def test_a_move_can_be_cancelled(kafka: RawConnection, running: Running) -> None:
    """Null replicas cancel it; then there is nothing left to cancel."""
    await add_broker(running, 2)
    await reassign(kafka, "t", 0, (2,))
    assert (await reassign(kafka, "t", 0, None)).error_code == ErrorCode.NONE
    assert running.broker.registry.topics["t"].assignment[0] == (1,)
    again = await reassign(kafka, "t", 0, None)
    assert again.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_move_arrives_when_the_new_replica_is_in_sync(
    kafka: RawConnection, running: Running
) -> None:
    """The controller brings it to its end, and the list is empty."""
    await add_broker(running, 2)
    await reassign(kafka, "t", 0, (2,))
    await set_state(running, leader=1, isr=(1, 2))
    registry, has_arrived = running.broker.registry, asyncio.Event()

    def look(_: object) -> None:
        if not registry.topics["t"].reassignments:
            has_arrived.set()

    cancel = registry.listen(look)
    async with controlled(running):
        await has_arrived.wait()
    cancel()
    topic = running.broker.registry.topics["t"]
    assert (topic.assignment[0], topic.states[0].leader, topic.states[0].isr) == ((2,), 2, (2,))
    assert await listed(kafka, None) == []


async def test_where_it_is_already_there_is_nothing_to_move(
    kafka: RawConnection, running: Running
) -> None:
    """The topic is not written at all."""
    version = running.broker.registry.topics["t"].node_version
    assert (await reassign(kafka, "t", 0, (1,))).error_code == ErrorCode.NONE
    assert running.broker.registry.topics["t"].node_version == version


@pytest.mark.parametrize("replicas", [(), (1, 1), (1, 9), (-1,)])
async def test_targets_that_cannot_be(kafka: RawConnection, replicas: tuple[int, ...]) -> None:
    """No replicas, one broker twice, one that is not alive."""
    row = await reassign(kafka, "t", 0, replicas)
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "t-0" in row.error_message


async def test_a_dead_replica_may_stay(kafka: RawConnection, running: Running) -> None:
    """Only new ones have to be alive."""
    await relocate(running.broker.registry, "t", 0, (1, 9))
    assert (await reassign(kafka, "t", 0, (9, 1))).error_code == ErrorCode.NONE
    assert running.broker.registry.topics["t"].assignment[0] == (9, 1)


async def test_rows_of_a_topic_are_written_together(kafka: RawConnection, running: Running) -> None:
    """500 at a time; each has an answer of its own, and a partition that is named twice is where it was sent last."""
    await create_topic(kafka, "many", 600)
    await add_broker(running, 2)
    rows = [(index, (2,)) for index in range(600)]
    rows[7], rows[8] = (7, (9,)), (999, (2,))
    answers = await reassign_all(kafka, "many", [*rows, (3, None), (3, None)])
    refused = {
        7: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        8: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        601: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }
    codes = [refused.get(place, ErrorCode.NONE) for place in range(602)]
    assert [one.error_code for one in answers] == codes
    topic = running.broker.registry.topics["many"]
    assert topic.reassignments.keys() == {*range(600)} - {3, 7, 8}
    assert topic.node_version == 2


async def test_what_does_not_exist_cannot_be_moved(kafka: RawConnection) -> None:
    """Neither topic nor partition."""
    for topic, partition in (("missing", 0), ("t", 7)):
        for replicas in ((1,), None):
            row = await reassign(kafka, topic, partition, replicas)
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
