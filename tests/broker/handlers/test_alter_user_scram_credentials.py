"""AlterUserScramCredentials: the rows of KIP-554."""

from __future__ import annotations

import json
from typing import Any

import pytest

from echoless.broker.authentication.user_nodes import credentials_in, read_users
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.protocol.sasl.scram import fits_password, salted_password
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, nested

API = "alter_user_scram_credentials"
SALT = b"0123456789"


def upsertion(name: str = "alice", mechanism: int = 1, iterations: int = 4096) -> Any:
    kind = Mechanism.SCRAM_SHA_512 if mechanism == 2 else Mechanism.SCRAM_SHA_256
    salted = salted_password(kind, "pencil", SALT, max(iterations, 1))
    return nested(API, 0, "ScramCredentialUpsertion")(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


def deletion(name: str = "alice", mechanism: int = 1) -> Any:
    return nested(API, 0, "ScramCredentialDeletion")(name=name, mechanism=mechanism)


async def altered(kafka: RawConnection, *changes: Any) -> dict[str, int]:
    """The code of each user."""
    is_deletion = [type(one).__name__ == "ScramCredentialDeletion" for one in changes]
    answer = await kafka.call(
        API,
        0,
        deletions=tuple(one for one, yes in zip(changes, is_deletion, strict=True) if yes),
        upsertions=tuple(one for one, yes in zip(changes, is_deletion, strict=True) if not yes),
    )
    return {row.user: int(row.error_code) for row in answer.results}


async def test_a_password_that_the_client_has_salted(
    running: Running, kafka: RawConnection
) -> None:
    """Is stored as what a log-in is compared with, for each mechanism."""
    assert await altered(kafka, upsertion(), upsertion(mechanism=2, iterations=16384)) == {
        "alice": 0
    }
    credentials = credentials_in((await read_users(running.broker.tree))["alice"])
    for mechanism, credential in credentials.items():
        assert fits_password(mechanism, credential, "pencil")
    assert [one.iterations for one in credentials.values()] == [4096, 16384]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),  # vector 21
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=4096), ErrorCode.NONE),
        (upsertion(iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(name=".."), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion(), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
async def test_what_is_refused(kafka: RawConnection, change: Any, code: ErrorCode) -> None:
    """One user's row; another's change is made all the same."""
    assert await altered(kafka, change, upsertion("bob")) == {change.name: code, "bob": 0}


async def test_all_changes_of_a_user_or_none(running: Running, kafka: RawConnection) -> None:
    """A deletion of what is not there undoes the user's other change (vector 22)."""
    assert await altered(kafka, deletion(mechanism=2), upsertion()) == {"alice": 91}
    assert await read_users(running.broker.tree) == {}


@pytest.mark.parametrize("second", [upsertion(), deletion()])
async def test_one_credential_twice(kafka: RawConnection, second: Any) -> None:
    """92, whether it is set or deleted."""
    assert await altered(kafka, upsertion(), second) == {"alice": ErrorCode.DUPLICATE_RESOURCE}


async def test_a_credential_is_deleted(running: Running, kafka: RawConnection) -> None:
    """And only that one; the node stays, as in Kafka."""
    await altered(kafka, upsertion("a b*/c"), upsertion("a b*/c", mechanism=2))
    assert await altered(kafka, deletion("a b*/c")) == {"a b*/c": 0}
    node = await running.broker.tree.read("/config/users/a%20b%2A%2Fc")
    assert json.loads(node.data)["config"].keys() == {"SCRAM-SHA-512"}
