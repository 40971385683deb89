"""ListGroups: the groups of this broker, with filters."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from echoless.broker.handlers.list_groups import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import alone, call, commit, created
from tests.support.in_process import Running
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


async def test_a_filter_longer_than_any_state_matches_nothing(
    kafka: RawConnection, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only its beginning is looked at, however long it is."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    await commit(kafka, {("t", 0): 1})
    assert len(await listed(kafka, 5, states=("EMPTY",), types=("Classic",))) == 1
    asked: list[str] = []
    groups = running.broker.services.groups
    ask = type(groups).listed

    def noted(self: object, states: Collection[str], types: Collection[str]) -> object:
        asked.extend([*states, *types])
        return ask(groups, states, types)

    monkeypatch.setattr(type(groups), "listed", noted)
    assert await listed(kafka, 5, states=("empty" + " " * 30_000,)) == []
    assert await listed(kafka, 5, types=("classic" * 5_000,)) == []
    assert asked
    assert max(map(len, asked)) < 100
