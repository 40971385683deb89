"""Heartbeat: a member learns that it is one, or has to rejoin."""

from __future__ import annotations

import pytest

from echoless.broker.handlers.heartbeat import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import alone, created, heartbeat, join
from tests.support.raw_client import RawConnection

VERSIONS = range(API.version_min, API.version_max + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_is_known_in_its_generation(kafka: RawConnection, version: int) -> None:
    """22 in another generation, 25 to someone else."""
    await created(kafka)
    generation, member_id = await alone(kafka)
    assert await heartbeat(kafka, generation, member_id, version) is ErrorCode.NONE
    assert await heartbeat(kafka, generation - 1, member_id, version) is (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert await heartbeat(kafka, generation, "who", version) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_that_was_replaced_is_fenced(kafka: RawConnection) -> None:
    """From version 3 on, which names the instance."""
    await created(kafka)
    generation, old = await alone(kafka, instance="i")
    await join(kafka, instance="i")
    fenced = await heartbeat(kafka, generation, old, group_instance_id="i")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
