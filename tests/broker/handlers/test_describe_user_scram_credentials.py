"""DescribeUserScramCredentials: the rows of KIP-554."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.broker.authentication.user_nodes import alter_user
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.protocol.sasl.scram import ScramCredential
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, nested

API = "describe_user_scram_credentials"
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)


@pytest.fixture
async def users(running: Running) -> None:
    """`bob` has both mechanisms, `alice` one, `carol` none any more."""
    tree, stronger = running.broker.tree, CREDENTIAL._replace(iterations=8192)
    both = {Mechanism.SCRAM_SHA_256: CREDENTIAL, Mechanism.SCRAM_SHA_512: stronger}
    await alter_user(tree, "bob", both)
    await alter_user(tree, "alice", {Mechanism.SCRAM_SHA_512: CREDENTIAL})
    await alter_user(tree, "carol", {Mechanism.SCRAM_SHA_512: CREDENTIAL})
    await alter_user(tree, "carol", {}, [Mechanism.SCRAM_SHA_512])


async def described(kafka: RawConnection, names: list[str] | None) -> list[Any]:
    user = nested(API, 0, "UserName")
    users = None if names is None else tuple(user(name=name) for name in names)
    answer = await kafka.call(API, 0, users=users)
    assert answer.error_code == 0
    return [
        (
            row.user,
            int(row.error_code),
            [(int(i.mechanism), int(i.iterations)) for i in row.credential_infos],
        )
        for row in answer.results
    ]


@pytest.mark.usefixtures("users")
@pytest.mark.parametrize("names", [None, []])
async def test_all_that_have_a_credential(kafka: RawConnection, names: list[str] | None) -> None:
    """Sorted, by null and by an empty list alike."""
    assert await described(kafka, names) == [
        ("alice", 0, [(2, 4096)]),
        ("bob", 0, [(1, 4096), (2, 8192)]),
    ]


@pytest.mark.usefixtures("users")
async def test_those_that_are_named(kafka: RawConnection) -> None:
    """91 for one that has none, 92 for one that is named twice."""
    assert await described(kafka, ["bob", "carol", "mallory", "alice", "alice"]) == [
        ("bob", 0, [(1, 4096), (2, 8192)]),
        ("carol", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("mallory", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("alice", ErrorCode.DUPLICATE_RESOURCE, []),
    ]
