"""CreateTopics, DeleteTopics and CreatePartitions, over a real socket."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from protocol.errors import ErrorCode
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


async def delete(kafka: RawConnection, *topics: dict[str, Any]) -> list[Any]:
    """Deletes by `name` and `topic_id`."""
    rows = tuple(
        nested("delete_topics", 6, "DeleteTopicState")(**{"name": None, "topic_id": None, **topic})
        for topic in topics
    )
    response = await kafka.call("delete_topics", 6, topics=rows, timeout=TIMEOUT)
    return list(response.responses)


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


async def test_topics_are_deleted_by_name_or_id(kafka: RawConnection, running: Running) -> None:
    """A deleted topic takes its partitions and files along; its name may be used again."""
    created = await create(kafka, wanted("by-name"), wanted("by-id"))
    by_id = created[1].topic_id
    rows = await delete(kafka, {"name": "by-name"}, {"topic_id": by_id})
    assert [(row.name, row.error_code) for row in rows] == [("by-name", 0), ("by-id", 0)]
    assert rows[1].topic_id == by_id
    assert not running.broker.partitions
    assert not running.broker.logs.logs
    (again,) = await create(kafka, wanted("by-name"))
    assert again.error_code == 0


async def test_what_cannot_be_deleted_is_told_why(kafka: RawConnection, running: Running) -> None:
    """Unknown names and ids, neither, both, and a topic that is named twice in two ways."""
    created = await create(kafka, wanted("t"), wanted("u"))
    by_id = created[0].topic_id
    stranger = uuid.UUID(int=5)
    rows = await delete(
        kafka,
        {"name": "missing"},
        {"topic_id": stranger},
        {},
        {"name": "u", "topic_id": created[1].topic_id},
        {"name": "t"},
        {"topic_id": by_id},
    )
    assert [row.error_code for row in rows] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        *(ErrorCode.INVALID_REQUEST,) * 4,
    ]
    assert sorted(running.broker.registry.topics) == ["t", "u"]


async def test_names_alone_are_deleted_in_old_versions(kafka: RawConnection) -> None:
    """Before version 6 topics have only names."""
    await create(kafka, wanted("t"))
    response = await kafka.call("delete_topics", 1, topic_names=("t", "missing"), timeout=TIMEOUT)
    assert [(row.name, row.error_code) for row in response.responses] == [
        ("t", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


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
