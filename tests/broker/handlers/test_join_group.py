"""JoinGroup: every version makes a member, and the leader alone learns who the others are."""

from __future__ import annotations

import asyncio
import datetime

import pytest

from echoless.broker.handlers.join_group import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import (
    SUBSCRIPTION,
    alone,
    created,
    heartbeat,
    join,
    two_members,
)
from tests.broker.until import until
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection

VERSIONS = range(API.version_min, API.version_max + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_alone_leads(kafka: RawConnection, version: int) -> None:
    """It gets the members with what they subscribe to; from version 4 on its id came before."""
    await created(kafka)
    answer = await join(kafka, version)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("raw-")
    assert [(one.member_id, one.metadata) for one in answer.members] == [
        (answer.member_id, SUBSCRIPTION)
    ]
    assert answer.protocol_name == "range"
    if version >= 7:
        assert answer.protocol_type == "consumer"
    if version >= 9:
        assert not answer.skip_assignment


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_error_has_no_generation(kafka: RawConnection, version: int) -> None:
    """The name of the protocol is null from version 7 on, empty before."""
    await created(kafka)
    answer = await join(kafka, version, session=datetime.timedelta(milliseconds=5999))
    assert (answer.error_code, answer.generation_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, -1)
    assert answer.protocol_name == (None if version >= 7 else "")
    assert (answer.leader, answer.member_id, answer.members) == ("", "", ())


async def test_of_two_members_one_leads(kafka: RawConnection, running: Running) -> None:
    """The other one gets no members, and knows who leads."""
    await created(kafka)
    other = await RawConnection.open(running.kafka_address)
    first, second = await two_members(kafka, other)
    assert first.generation_id == second.generation_id == 2
    assert (first.leader, second.leader) == (first.member_id, first.member_id)
    assert {one.member_id for one in first.members} == {first.member_id, second.member_id}
    assert second.members == ()
    await other.close()


async def test_a_static_member_keeps_its_place(kafka: RawConnection) -> None:
    """KIP-345, KIP-814: back within its session, in the same generation; the leader assigns nothing."""
    await created(kafka)
    generation, member_id = await alone(kafka, instance="i")
    answer = await join(kafka, instance="i")
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, generation)
    assert answer.member_id != member_id
    assert answer.skip_assignment


async def test_a_client_that_goes_away_while_it_waits_is_forgotten_in_time(
    kafka: RawConnection, running: Running
) -> None:
    """Its wait ends with its connection; a member that never comes back does not hold up the rest for ever."""
    await created(kafka)
    _, member_id = await alone(kafka)
    gone = await RawConnection.open(running.kafka_address)
    waiting = asyncio.ensure_future(join(gone, 3))
    groups = running.broker.groups
    (shard,) = [one for one in groups.shards.values() if one.partition.log.log_end_offset]
    await until(lambda: shard._replies._awaited)
    waiting.cancel()
    await gone.close()
    await until(lambda: not shard._replies._awaited)
    assert await heartbeat(kafka, 1, member_id) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_without_a_name_there_is_no_group(kafka: RawConnection) -> None:
    """INVALID_GROUP_ID comes before anything else; 16 until `__consumer_offsets` is there."""
    assert (await join(kafka, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await join(kafka)).error_code == ErrorCode.NOT_COORDINATOR
