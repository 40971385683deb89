"""SyncGroup: the leader's assignment reaches every member."""

from __future__ import annotations

import asyncio

import pytest

from echoless.broker.handlers.sync_group import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import created, join, sync, two_members
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection

VERSIONS = range(API.version_min, API.version_max + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_member_gets_its_part(
    kafka: RawConnection, running: Running, version: int
) -> None:
    """The follower waits until the leader has given it; a member that is left out gets no bytes."""
    await created(kafka)
    other = await RawConnection.open(running.kafka_address)
    leader, follower = await two_members(kafka, other)
    theirs = asyncio.ensure_future(sync(other, 2, follower.member_id, {}, version))
    mine = await sync(kafka, 2, leader.member_id, {leader.member_id: b"mine"}, version)
    assert (mine.error_code, mine.assignment) == (ErrorCode.NONE, b"mine")
    assert ((await theirs).error_code, (await theirs).assignment) == (ErrorCode.NONE, b"")
    again = await sync(kafka, 2, leader.member_id, {}, version)
    assert again.assignment == b"mine"
    if version >= 5:
        assert (again.protocol_type, again.protocol_name) == ("consumer", "range")
    await other.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_error_has_no_assignment(kafka: RawConnection, version: int) -> None:
    await created(kafka)
    answer = await sync(kafka, 1, "who", {}, version)
    assert (answer.error_code, answer.assignment) == (ErrorCode.UNKNOWN_MEMBER_ID, b"")


async def test_version_5_names_the_protocol(kafka: RawConnection) -> None:
    """INCONSISTENT_GROUP_PROTOCOL without a name; earlier versions have no field for it."""
    await created(kafka)
    joined = await join(kafka)
    answer = await sync(kafka, 1, joined.member_id, {}, protocol_name=None)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = await sync(kafka, 1, joined.member_id, {}, 4)
    assert answer.error_code == ErrorCode.NONE
