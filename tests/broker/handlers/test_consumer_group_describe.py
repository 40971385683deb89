"""ConsumerGroupDescribe: groups of the consumer protocol with their members."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.broker.handlers.consumer_group_describe import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import alone, call, created
from tests.broker.handlers.test_consumer_group_heartbeat import beat
from tests.support.raw_client import RawConnection, create_topic

VERSIONS = range(API.version_min, API.version_max + 1)


async def describe(kafka: RawConnection, version: int = 1, *names: str) -> list[Any]:
    """The rows of the answer."""
    answer = await call(
        kafka,
        "consumer_group_describe",
        version,
        group_ids=names or ("g",),
        include_authorized_operations=True,
    )
    return list(answer.groups)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_is_described_with_what_members_have_and_are_to_have(
    kafka: RawConnection, version: int
) -> None:
    """Epochs, state, subscription, client and host of each."""
    await create_topic(kafka, "t", 2)
    await created(kafka)
    await beat(kafka, "m1", 0, instance_id="i", rack_id="r")
    await beat(kafka, "m2", 0, subscribed_topic_regex="t.*")
    (group,) = await describe(kafka, version)
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "uniform")
    assert group.authorized_operations == 328  # Read, Delete and Describe
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id) == ("m1", "i", "r")
    assert (first.member_epoch, second.member_epoch) == (1, 2)
    assert (first.client_id, first.client_host) == ("raw", "/127.0.0.1")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (("t",), "")
    assert second.subscribed_topic_regex == "t.*"
    (has,) = first.assignment.topic_partitions
    assert (has.topic_name, has.partitions) == ("t", (0, 1))
    (target,) = second.target_assignment.topic_partitions
    assert (target.topic_name, len(target.partitions)) == ("t", 1)
    if version >= 1:
        assert first.member_type == 1


async def test_other_groups_are_not_found(kafka: RawConnection) -> None:
    """69 with the reason for a classic group and for none; 24 without a name."""
    await created(kafka)
    await alone(kafka)
    rows = await describe(kafka, 1, "g", "no", "")
    found = {row.group_id: (row.error_code, row.error_message) for row in rows}
    assert found == {
        "g": (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group."),
        "no": (ErrorCode.GROUP_ID_NOT_FOUND, "Group no not found."),
        "": (ErrorCode.INVALID_GROUP_ID, None),
    }
