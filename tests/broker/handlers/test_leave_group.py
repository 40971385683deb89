"""LeaveGroup: members go at once, one or several."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.broker.handlers.leave_group import API, LEAVING_MAX
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import GROUP, alone, call, created, heartbeat
from tests.support.raw_client import RawConnection, nested

VERSIONS = range(API.version_min, API.version_max + 1)
MEMBERS_FROM = 3


async def leave(
    kafka: RawConnection, version: int, *members: tuple[str, str | None]
) -> tuple[ErrorCode, list[ErrorCode]]:
    """The code on top, and that of each member."""
    fields: dict[str, Any] = {"member_id": members[0][0]}
    if version >= MEMBERS_FROM:
        identity = nested("leave_group", version, "MemberIdentity")
        reason = {"reason": "a test"} if version >= 5 else {}
        fields["members"] = tuple(
            identity(member_id=one, group_instance_id=instance, **reason)
            for one, instance in members
        )
    answer = await call(kafka, "leave_group", version, group_id=GROUP, **fields)
    rows = answer.members if version >= MEMBERS_FROM else ()
    return ErrorCode(answer.error_code), [ErrorCode(one.error_code) for one in rows]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_that_left_is_unknown(kafka: RawConnection, version: int) -> None:
    """Before version 3 the code of the one member is that of the answer."""
    await created(kafka)
    generation, member_id = await alone(kafka)
    code, rows = await leave(kafka, version, (member_id, None))
    assert code is ErrorCode.NONE
    assert rows == ([ErrorCode.NONE] if version >= MEMBERS_FROM else [])
    assert await heartbeat(kafka, generation, member_id) is ErrorCode.UNKNOWN_MEMBER_ID
    code, rows = await leave(kafka, version, (member_id, None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert (code, rows) == (
        (ErrorCode.NONE, [unknown]) if version >= MEMBERS_FROM else (unknown, [])
    )


async def test_an_administrator_removes_static_members(kafka: RawConnection) -> None:
    """By their instance ids alone; each member has its own code."""
    await created(kafka)
    await alone(kafka, instance="i")
    code, rows = await leave(kafka, 5, ("", "i"), ("who", None))
    assert (code, rows) == (ErrorCode.NONE, [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])


async def test_more_members_than_a_group_has_are_refused_with_one_request(
    kafka: RawConnection,
) -> None:
    """All of them are looked at in one step."""
    await created(kafka)
    members = [(str(number), None) for number in range(LEAVING_MAX + 1)]
    assert await leave(kafka, 5, *members) == (ErrorCode.INVALID_REQUEST, [])
    code, rows = await leave(kafka, 5, *members[1:])
    assert (code, set(rows)) == (ErrorCode.NONE, {ErrorCode.UNKNOWN_MEMBER_ID})
