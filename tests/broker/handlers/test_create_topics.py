"""CreateTopics, over a real socket: numbers, configurations, assignments, and what is refused."""

from __future__ import annotations

import datetime
from typing import Any

from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, nested

TIMEOUT = datetime.timedelta(seconds=5)


def wanted(name: str, **fields: Any) -> Any:
    """A topic of CreateTopics 7; numbers that are left out are the broker's."""
    configs = fields.pop("configs", {})
    assignments = fields.pop("assignments", {})
    return nested("create_topics", 7, "CreatableTopic")(
        name=name,
        num_partitions=fields.pop("num_partitions", -1),
        replication_factor=fields.pop("replication_factor", -1),
        assignments=tuple(
            nested("create_topics", 7, "CreatableReplicaAssignment")(
                partition_index=index, broker_ids=brokers
            )
            for index, brokers in (
                assignments.items() if isinstance(assignments, dict) else assignments
            )
        ),
        configs=tuple(
            nested("create_topics", 7, "CreatableTopicConfig")(name=key, value=value)
            for key, value in (configs.items() if isinstance(configs, dict) else configs)
        ),
    )


async def create(kafka: RawConnection, *topics: Any, validate_only: bool = False) -> list[Any]:
    response = await kafka.call("create_topics", 7, topics=topics, validate_only=validate_only)
    return list(response.topics)


async def test_a_new_topic_tells_what_it_is(kafka: RawConnection, running: Running) -> None:
    """The answer has the id, the numbers, and the configuration in force with its sources."""
    (row,) = await create(kafka, wanted("t", num_partitions=3, configs={"segment.bytes": "1MiB"}))
    assert (row.error_code, row.error_message) == (0, None)
    assert (row.num_partitions, row.replication_factor) == (3, 1)
    assert row.topic_id == running.broker.registry.topics["t"].topic_id
    configs = {config.name: (config.value, config.config_source) for config in row.configs}
    assert configs["segment.bytes"] == ("1048576", 1)
    assert configs["retention.ms"] == ("604800000", 5)


async def test_numbers_left_out_are_the_brokers(kafka: RawConnection) -> None:
    """-1 partitions and replicas mean num_partitions and default_replication_factor."""
    (row,) = await create(kafka, wanted("t"))
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 1, 1)


async def test_validating_creates_nothing(kafka: RawConnection, running: Running) -> None:
    """validate_only gives the whole answer, and creates no topic."""
    (row,) = await create(kafka, wanted("t", num_partitions=2), validate_only=True)
    assert (row.error_code, row.num_partitions) == (0, 2)
    assert "t" not in running.broker.registry.topics
    assert not running.broker.partitions


async def test_topics_fail_one_by_one(kafka: RawConnection) -> None:
    """Each row has its own code and reason; the good ones are created."""
    rows = await create(
        kafka,
        wanted("good"),
        wanted("bad name"),
        wanted("replicas", replication_factor=3),
        wanted("no-replicas", replication_factor=0),
        wanted("none", num_partitions=0),
        wanted("negative", num_partitions=-2),
        wanted("many", num_partitions=2**31 - 1),
        wanted("unknown", configs={"segment.bites": "1"}),
        wanted("wrong", configs={"segment.bytes": "few"}),
        wanted("null", configs={"segment.bytes": None}),
        wanted("lags", configs={"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}),
        wanted("twice-set", configs=[("retention.ms", "1"), ("retention.ms", "2")]),
    )
    assert [(row.name, row.error_code) for row in rows] == [
        ("good", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("replicas", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("no-replicas", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("none", ErrorCode.INVALID_PARTITIONS),
        ("negative", ErrorCode.INVALID_PARTITIONS),
        ("many", ErrorCode.INVALID_PARTITIONS),
        ("unknown", ErrorCode.INVALID_CONFIG),
        ("wrong", ErrorCode.INVALID_CONFIG),
        ("null", ErrorCode.INVALID_CONFIG),
        ("lags", ErrorCode.INVALID_CONFIG),
        ("twice-set", ErrorCode.INVALID_CONFIG),
    ]
    assert all(row.error_message for row in rows[1:])
    (again,) = await create(kafka, wanted("good"))
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    _, collision = await create(kafka, wanted("go_od"), wanted("go.od"))
    assert collision.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_name_twice_in_one_request_is_refused(
    kafka: RawConnection, running: Running
) -> None:
    """Neither of two entries of one name is created; they get one row."""
    rows = await create(kafka, wanted("t"), wanted("t", num_partitions=2), wanted("u"))
    assert [(row.name, row.error_code) for row in rows] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]
    assert list(running.broker.registry.topics) == ["u"]


async def test_an_explicit_assignment_stands_for_both_numbers(kafka: RawConnection) -> None:
    """Partitions are counted by their assignment; what contradicts it is refused."""
    rows = await create(
        kafka,
        wanted("good", assignments={0: (1,), 1: (1,)}),
        wanted("numbers", num_partitions=2, assignments={0: (1,), 1: (1,)}),
        wanted("stranger", assignments={0: (9,)}),
        wanted("gap", assignments={1: (1,)}),
        wanted("twice", assignments=[(0, (1,)), (0, (1,))]),
    )
    assert [row.error_code for row in rows] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]
    assert rows[0].num_partitions == 2
