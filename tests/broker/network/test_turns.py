"""Answers of many rows: worked on in turns, between which others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

from echoless.broker.handlers.config_resource import ConfigResourceType
from echoless.broker.network.loop_turn import TURN_S
from echoless.broker.network.turns import ROWS_PER_TURN, ManyRows, in_turns
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested

ROWS = 10 * ROWS_PER_TURN


async def test_few_rows_are_answered_at_once():
    """No task, and an answer like any other."""
    assert in_turns(iter(range(3)), lambda rows: {"rows": rows}) == {"rows": [0, 1, 2]}


async def test_others_have_their_turn_between_many_rows():
    """Callbacks that are ready run before the next turn; all rows come, in order."""
    turns_of_others = []
    asyncio.get_running_loop().call_soon(turns_of_others.append, "other")
    seen_at: list[int] = []

    def rows() -> Iterator[int]:
        for number in range(ROWS):
            seen_at.append(len(turns_of_others))
            yield number

    outcome = in_turns(rows(), lambda found: {"rows": found})
    assert isinstance(outcome, Awaitable)
    answer = await outcome
    assert isinstance(answer, ManyRows)
    assert answer == {"rows": list(range(ROWS))}
    assert seen_at[0] == 0
    assert seen_at[ROWS_PER_TURN] == 1


async def test_a_turn_ends_when_its_time_is_up():
    """Few rows that take long are as bad as many."""

    def rows() -> Iterator[float]:
        clock = asyncio.get_running_loop().time
        began = clock()
        while clock() < began + 2 * TURN_S:
            pass
        yield from (1.0, 2.0)

    outcome = in_turns(rows(), lambda found: {"rows": found})
    assert isinstance(outcome, Awaitable)
    assert await outcome == {"rows": [1.0, 2.0]}


async def test_many_rows_of_list_offsets_come_in_order(kafka: RawConnection):
    """One answer for each row, under the topic that asked for it; the next request comes after it."""
    await create_topic(kafka, "t", 2)
    row = nested("list_offsets", 5, "ListOffsetsPartition")
    topic = nested("list_offsets", 5, "ListOffsetsTopic")
    topics = tuple(
        topic(
            name=name,
            partitions=tuple(row(partition_index=index, timestamp=-2) for index in range(ROWS)),
        )
        for name in ("t", "missing")
    )
    response = await kafka.call("list_offsets", 5, replica_id=-1, isolation_level=0, topics=topics)
    existing = {"t": 2, "missing": 0}
    for found in response.topics:
        assert [one.partition_index for one in found.partitions] == list(range(ROWS))
        served = [one.partition_index for one in found.partitions if one.error_code == 0]
        assert served == list(range(existing[found.name]))


async def test_many_resources_of_describe_configs(running: Running, kafka: RawConnection):
    """A thousand rows, each with what was asked; one that is named twice is refused."""
    await create_topic(kafka, "t", 1)
    resource = nested("describe_configs", 4, "DescribeConfigsResource")
    names = ["t", *(f"missing-{number}" for number in range(1000)), "twice", "twice"]
    response = await kafka.call(
        "describe_configs",
        4,
        resources=tuple(
            resource(
                resource_type=ConfigResourceType.TOPIC,
                resource_name=name,
                configuration_keys=("segment.bytes",),
            )
            for name in names
        ),
    )
    assert [row.resource_name for row in response.results] == names
    assert [config.name for config in response.results[0].configs] == ["segment.bytes"]
    codes = {row.error_code for row in response.results[1:-2]}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [row.error_code for row in response.results[-2:]] == [ErrorCode.INVALID_REQUEST] * 2
