"""Which ids of groups are refused at the door, before anything waits."""

from __future__ import annotations

import pytest

from echoless.coordinators.groups.consumer.requests import ConsumerDescribe
from echoless.coordinators.groups.group_ids import group_id_error
from echoless.coordinators.groups.requests import (
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from echoless.protocol.errors import ErrorCode
from tests.coordinators.groups.consumers import ConsumerShell
from tests.coordinators.groups.shell import Shell

NEED_NAME = (
    Shell().join_request(group_id="g"),
    SyncGroup("g", 1, "m", None, ()),
    Heartbeat("g", 1, "m", None),
    LeaveGroup("g", ()),
    OffsetDelete("g", ()),
    ConsumerDescribe("g"),
)
MAY_BE_NAMELESS = (
    OffsetCommit("g", -1, "", None, ()),
    OffsetFetch("g", None),
    DescribeGroup("g"),
    DeleteGroup("g"),
    ConsumerShell().heartbeat_request("m", 0),  # its own check names the field
)


@pytest.mark.parametrize(
    "request_", NEED_NAME + MAY_BE_NAMELESS, ids=lambda one: type(one).__name__
)
def test_an_id_is_held_and_hashed_so_it_is_not_long(request_):
    """1,024 characters, for every API."""
    assert group_id_error(request_._replace(group_id="x" * 1_024)) is ErrorCode.NONE
    assert group_id_error(request_._replace(group_id="x" * 1_025)) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("request_", NEED_NAME, ids=lambda one: type(one).__name__)
def test_members_need_a_group_with_a_name(request_):
    """As in Kafka."""
    assert group_id_error(request_) is ErrorCode.NONE
    assert group_id_error(request_._replace(group_id="")) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("request_", MAY_BE_NAMELESS, ids=lambda one: type(one).__name__)
def test_offsets_of_the_group_without_a_name_are_served(request_):
    """Old clients committed to it."""
    assert group_id_error(request_._replace(group_id="")) is ErrorCode.NONE
