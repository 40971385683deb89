"""DescribeGroups: state and members of groups."""

from __future__ import annotations

import pytest

from echoless.broker.handlers import answer_room
from echoless.broker.handlers.describe_groups import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import SUBSCRIPTION, alone, call, created
from tests.support.raw_client import RawConnection

VERSIONS = range(API.version_min, API.version_max + 1)
NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_stable_group_is_described_with_its_members(
    kafka: RawConnection, version: int
) -> None:
    """Subscription, assignment, client and host of each."""
    await created(kafka)
    _, member_id = await alone(kafka, instance="i")
    answer = await call(
        kafka, "describe_groups", version, groups=("g",), include_authorized_operations=True
    )
    (group,) = answer.groups
    assert (group.error_code, group.group_id) == (ErrorCode.NONE, "g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        ("Stable", "consumer", "range")
    )
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (
        (member_id, "raw", "/127.0.0.1")
    )
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"all")
    if version >= 3:
        assert group.authorized_operations == 328  # Read, Delete and Describe
    if version >= 4:
        assert member.group_instance_id == "i"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_that_does_not_exist_is_dead(kafka: RawConnection, version: int) -> None:
    """From version 6 on that is an error, with a message (KIP-1043)."""
    await created(kafka)
    answer = await call(
        kafka, "describe_groups", version, groups=("no",), include_authorized_operations=False
    )
    (group,) = answer.groups
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (group.error_code, group.group_state, group.members) == (code, "Dead", ())
    if version >= 3:
        assert group.authorized_operations == NOT_ASKED
    if version >= 6:
        assert group.error_message == "Group no not found."


async def test_another_broker_has_to_be_asked(kafka: RawConnection) -> None:
    """16 for each group whose partition this broker does not lead."""
    answer = await call(
        kafka, "describe_groups", 5, groups=("a", "b"), include_authorized_operations=False
    )
    assert [one.error_code for one in answer.groups] == [ErrorCode.NOT_COORDINATOR] * 2


async def test_an_answer_has_room_for_the_first_group_and_for_some_more(
    kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are to be asked for again; what has many bytes is encoded beside the loop."""
    monkeypatch.setattr(answer_room, "BYTES_MAX", 1)
    await created(kafka)
    await alone(kafka)
    names = ("g", "no", "no", "nor")
    answer = await call(
        kafka, "describe_groups", 5, groups=names, include_authorized_operations=False
    )
    rows = {one.group_id: (one.error_code, len(one.members)) for one in answer.groups}
    no_room = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0)
    assert rows == {"g": (ErrorCode.NONE, 1), "no": no_room, "nor": no_room}
    answer = await call(
        kafka, "describe_groups", 5, groups=names[1:], include_authorized_operations=False
    )
    assert answer.groups[0].error_code == ErrorCode.NONE
