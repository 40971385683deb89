"""ListGroups: the groups of this broker, with filters."""

from __future__ import annotations

import pytest

from echoless.broker.handlers.list_groups import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import alone, call, commit, created
from tests.support.raw_client import RawConnection, create_topic

VERSIONS = range(API.version_min, API.version_max + 1)


async def listed(
    kafka: RawConnection, version: int, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> list[tuple[str, ...]]:
    """Id, protocol type, and what else the version has, of each group."""
    answer = await call(kafka, "list_groups", version, states_filter=states, types_filter=types)
    assert answer.error_code == ErrorCode.NONE
    fields = ("group_id", "protocol_type", "group_state", "group_type")
    count = 2 if version < 4 else 3 if version < 5 else 4
    return sorted(tuple(getattr(one, f) for f in fields[:count]) for one in answer.groups)


@pytest.mark.parametrize("version", VERSIONS)
async def test_groups_with_and_without_members_are_listed(
    kafka: RawConnection, version: int
) -> None:
    """States from version 4 on, types from version 5 on; filters ignore case."""
    await create_topic(kafka, "t", 1)
    assert await listed(kafka, version) == []
    await created(kafka)
    await alone(kafka)
    await commit(kafka, {("t", 0): 1}, group="simple")
    full = [("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")]
    count = 2 if version < 4 else 3 if version < 5 else 4
    assert await listed(kafka, version) == [one[:count] for one in full]
    if version >= 4:
        assert await listed(kafka, version, states=("STABLE",)) == [full[0][:count]]
    if version >= 5:
        assert await listed(kafka, version, types=("Classic",)) == full
        assert await listed(kafka, version, types=("none",)) == []
