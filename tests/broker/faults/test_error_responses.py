"""Error responses of every API and version that a rule can refuse, whole and in part."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from echoless.broker.faults.answer_codes import codes_in
from echoless.broker.handlers.apis import API_BY_NAME
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.errors import ErrorCode
from tests.broker.faults.lab import TOPIC, Lab
from tests.support.kio_requests import smallest_request
from tests.support.raw_client import RawConnection, decode_whole, message, nested

CODE = 7
HEAD_SIZE = 8
"""The length and the correlation id of an answer."""
ELECTION_NOT_NEEDED = 84
NO_TIME = datetime.timedelta(0)
APIS = API_BY_NAME
LISTS = {
    "coordinator_keys": ("group",),
    "groups": ("group",),
    "groups_names": ("group",),
    "group_ids": ("group",),
    "partition_indexes": (0,),
    "partitions": (0,),
    "topic_names": ("none",),
    "transactional_ids": ("none",),
}
"""Lists that the smallest request leaves empty, and that an error needs."""


def filled(entity: Any) -> Any:
    """The request with something in its lists."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        if field.name in LISTS and not value:
            changes[field.name] = LISTS[field.name]
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            changes[field.name] = tuple(map(filled, value))
    return dataclasses.replace(entity, **changes)


def error_codes(entity: Any) -> list[int]:
    """Every error code in the response, at any depth."""
    found = []
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        if field.name in {"error_code", "partition_error_code"}:
            found.append(int(value))
        rows = value if isinstance(value, tuple) else (value,)
        for row in rows:
            if dataclasses.is_dataclass(row):
                found += error_codes(row)
    return found


@pytest.mark.parametrize("name", APIS)
async def test_every_version_carries_the_error(lab: Lab, kafka: RawConnection, name: str) -> None:
    """kio reads the response to its end, and finds the code, with and without processing."""
    for action in ("error", "error_after"):
        rule = lab.add({"type": action, "code": CODE}, {"api": name})
        versions = range(APIS[name].version_min, APIS[name].version_max + 1)
        for version in versions:
            kafka.send_request(filled(smallest_request(name, version, elements=1)))
            response = message(name, version, "Response")
            answer = await kafka.receive()
            entity, left_over = decode_whole(response, answer)
            assert ErrorCode(CODE) in codes_in(APIS[name], version, bytes(HEAD_SIZE) + answer)
            assert left_over == 0, f"{name} v{version}"
            assert CODE in error_codes(entity), f"{name} v{version}"
        assert lab.counts(rule) == (len(versions), len(versions))
        lab.broker.faults.clear()


@pytest.mark.parametrize("action", ["error", "error_after"])
async def test_offsets_of_the_other_partitions_are_listed(
    lab: Lab, kafka: RawConnection, action: str
) -> None:
    """A read is refused for the partition that matches alone."""
    lab.add({"type": action, "code": CODE}, {"api": "list_offsets", "partition": 1})
    row = nested("list_offsets", 5, "ListOffsetsPartition")
    rows = tuple(row(partition_index=index, timestamp=-1) for index in (0, 1))
    response = await kafka.call(
        "list_offsets",
        5,
        replica_id=-1,
        isolation_level=0,
        topics=(nested("list_offsets", 5, "ListOffsetsTopic")(name=TOPIC, partitions=rows),),
    )
    found = {one.partition_index: int(one.error_code) for one in response.topics[0].partitions}
    assert found == {0: 0, 1: CODE}


async def test_a_refused_topic_is_not_created_and_the_other_is(
    lab: Lab, kafka: RawConnection
) -> None:
    """CreateTopics, topic by topic."""
    lab.add({"type": "error", "code": 41}, {"api": "create_topics", "topic": "refused"})
    topic = nested("create_topics", 5, "CreatableTopic")
    topics = tuple(
        topic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
        for name in ("refused", "created")
    )
    response = await kafka.call("create_topics", 5, topics=topics)
    assert {one.name: int(one.error_code) for one in response.topics} == {
        "refused": 41,
        "created": 0,
    }
    assert set(lab.broker.registry.topics) == {TOPIC, "created"}


@pytest.mark.parametrize("action", ["error", "error_after"])
async def test_an_election_is_refused_for_one_partition(
    lab: Lab, kafka: RawConnection, action: str
) -> None:
    """The others are held, or needless."""
    lab.add({"type": action, "code": CODE}, {"api": "elect_leaders", "partition": 1})
    wanted = nested("elect_leaders", 2, "TopicPartitions")(topic=TOPIC, partitions=(0, 1))
    response = await kafka.call(
        "elect_leaders", 2, election_type=0, topic_partitions=(wanted,), timeout=NO_TIME
    )
    (topic,) = response.replica_election_results
    codes = {one.partition_id: int(one.error_code) for one in topic.partition_result}
    assert codes == {0: ELECTION_NOT_NEEDED, 1: CODE}
    assert response.error_code.value == 0


async def test_an_election_of_all_partitions_is_refused_as_a_whole(
    lab: Lab, kafka: RawConnection
) -> None:
    """Those that are refused cannot be taken out of it."""
    lab.add({"type": "error", "code": CODE}, {"api": "elect_leaders"})
    response = await kafka.call(
        "elect_leaders", 2, election_type=0, topic_partitions=None, timeout=NO_TIME
    )
    assert response.error_code.value == CODE


async def test_a_refused_topic_is_not_deleted_and_the_other_is(
    lab: Lab, kafka: RawConnection
) -> None:
    """DeleteTopics, topic by topic, in the version that names them in another field too."""
    await lab.broker.services.topics.create(NewTopic(name="other"))
    lab.add({"type": "error", "code": CODE}, {"api": "delete_topics", "topic": TOPIC})
    response = await kafka.call("delete_topics", 1, topic_names=(TOPIC, "other"), timeout=NO_TIME)
    codes = {one.name: int(one.error_code) for one in response.responses}
    assert codes == {TOPIC: CODE, "other": 0}
    assert set(lab.broker.registry.topics) == {TOPIC}


async def test_metadata_with_an_error_still_names_the_brokers(
    lab: Lab, kafka: RawConnection
) -> None:
    """A client that gets LEADER_NOT_AVAILABLE has to find its way to retry."""
    lab.add({"type": "error", "code": 5}, {"api": "metadata"})
    response = await kafka.call(
        "metadata",
        8,
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    assert [broker.node_id for broker in response.brokers] == [1]
    assert [(one.name, int(one.error_code)) for one in response.topics] == [(TOPIC, 5)]


@pytest.mark.parametrize("action", ["error", "error_after"])
async def test_metadata_of_all_topics_has_an_error_for_one_and_the_others(
    lab: Lab, kafka: RawConnection, action: str
) -> None:
    """A rule for one topic takes no other out of the answer."""
    await lab.broker.services.topics.create(NewTopic(name="refused"))
    lab.add({"type": action, "code": 29}, {"api": "metadata", "topic": "refused"})
    response = await kafka.call(
        "metadata",
        8,
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    rows = {one.name: (int(one.error_code), len(one.partitions)) for one in response.topics}
    assert rows == {TOPIC: (0, 2), "refused": (29, 0)}
