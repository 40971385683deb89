"""DeleteGroups: groups without members, and everything they have committed."""

from __future__ import annotations

import pytest

from echoless.broker.handlers.delete_groups import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import alone, commit, committed, created
from tests.support.raw_client import RawConnection, create_topic

VERSIONS = range(API.version_min, API.version_max + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_goes_with_its_offsets(kafka: RawConnection, version: int) -> None:
    """68 while it has members, 69 if there is none; each group has its own code."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    await alone(kafka)
    await commit(kafka, {("t", 0): 1}, group="simple")
    answer = await kafka.call("delete_groups", version, groups_names=("g", "simple", "no"))
    codes = {row.group_id: row.error_code for row in answer.results}
    assert codes == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "no": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert await committed(kafka, None, group="simple") == []
