"""`echoless acls`, against a running broker and against the coordinator of a stopped one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.echoless import Echoless

pytestmark = pytest.mark.slow

ALICE_WRITES = ("--principal", "User:alice", "--operation", "write", "--topic", "orders")
STORED = {
    "resource": "topic",
    "name": "orders",
    "pattern": "literal",
    "principal": "User:alice",
    "host": "*",
    "operation": "write",
    "permission": "allow",
}
SETTINGS = {"authorizer": "acl", "super_users": "User:ANONYMOUS"}


@pytest.fixture(params=["a broker", "a data directory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The options that choose it."""
    if request.param == "a data directory":
        yield ("--data-dir", str(tmp_path / "data"))
        return
    broker = Echoless(tmp_path, SETTINGS)
    broker.start()
    yield ("--bootstrap-server", broker.kafka_address)
    broker.kill()


def test_acls_are_added_listed_and_removed(echoless: Command, target: tuple[str, ...]) -> None:
    """Filters find what is about a resource; removal takes exactly what the options describe."""
    added = echoless("acls", "add", *target, *ALICE_WRITES, "--operation", "describe-configs")
    assert (added.code, added.out) == (0, "")
    assert "added: allow User:alice write on literal topic orders" in added.err
    for options in (
        ("--principal", "User:*", "--operation", "all", "--topic", "or", "--prefixed", "--deny"),
        ("--principal", "User:bob", "--operation", "alter", "--cluster", "--host", "::1"),
        ("--principal", "User:bob", "--operation", "read", "--group", "g"),
        ("--principal", "User:bob", "--operation", "write", "--transactional-id", "x"),
    ):
        assert echoless("acls", "add", *target, *options).code == 0
    rows = echoless("acls", "list", *target, "--json").json
    assert len(rows) == 6
    assert STORED in rows
    assert {row["host"] for row in rows} == {"*", "0:0:0:0:0:0:0:1"}
    about = echoless("acls", "list", *target, "--topic", "orders", "--json").json
    assert [(row["name"], row["operation"]) for row in about] == [
        ("orders", "write"),
        ("orders", "describe-configs"),
        ("or", "all"),
    ]
    assert "6 ACLs" in echoless("acls", "list", *target).out

    removed = echoless("acls", "remove", *target, *ALICE_WRITES)
    assert removed.err.splitlines() == ["removed: allow User:alice write on literal topic orders"]
    assert len(echoless("acls", "list", *target, "--json").json) == 5
    assert echoless("acls", "remove", *target, *ALICE_WRITES).code != 0
    assert echoless("acls", "remove", *target, "--principal", "User:bob").code == 0
    assert echoless("acls", "list", *target, "--principal", "User:bob", "--json").json == []


def test_names_and_principals_may_be_repeated(echoless: Command, target: tuple[str, ...]) -> None:
    """Each of them counts: once only the last one did, and nothing said so."""
    two = ("--group", "a", "--group", "b", "--principal", "User:x", "--principal", "User:y")
    added = echoless("acls", "add", *target, *two, "--operation", "read")
    assert (added.code, len(added.err.splitlines())) == (0, 4)
    rows = echoless("acls", "list", *target, *two[:4], "--json").json
    assert {(row["name"], row["principal"]) for row in rows} == {
        (name, principal) for name in "ab" for principal in ("User:x", "User:y")
    }
    assert len(echoless("acls", "list", *target, "--principal", "User:x", "--json").json) == 2
    assert echoless("acls", "remove", *target, *two[:4], "--principal", "User:x").code == 0
    left = echoless("acls", "list", *target, "--json").json
    assert {row["principal"] for row in left} == {"User:y"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("add", *ALICE_WRITES[2:]), "--principal"),
        (("add", *ALICE_WRITES[:4]), "--topic"),
        (("add", *ALICE_WRITES, "--group", "g"), "only one of"),
        (("add", *ALICE_WRITES[:3], "fly", "--topic", "t"), "describe-configs"),
        (("add", "--principal", "alice", *ALICE_WRITES[2:]), "User:alice"),
        (("add", *ALICE_WRITES[:4], "--topic", "a/b"), "slash"),
        (("remove",), "--principal"),
    ],
)
def test_a_mistake_is_named(
    echoless: Command, target: tuple[str, ...], arguments: tuple[str, ...], complaint: str
) -> None:
    """Nothing is changed, and the line says what is missing or wrong."""
    ran = echoless("acls", *arguments[:1], *target, *arguments[1:])
    assert ran.code != 0
    assert complaint in ran.err


def test_the_first_acl_is_there_when_the_broker_starts(echoless: Command, tmp_path: Path) -> None:
    """An administrator who is no super user is made before anyone can connect."""
    broker = Echoless(tmp_path, {"authorizer": "acl"})
    for operation in ("alter", "describe"):
        admin = ("--principal", "User:ANONYMOUS", "--operation", operation, "--cluster")
        assert echoless("acls", "add", "--data-dir", broker.data_dir, *admin).code == 0
    broker.start()
    try:
        at = ("--bootstrap-server", broker.kafka_address)
        assert len(echoless("acls", "list", *at, "--json").json) == 2
        assert echoless("acls", "add", *at, *ALICE_WRITES).code == 0
        in_use = echoless("acls", "list", "--data-dir", broker.data_dir)
        assert in_use.code != 0
        assert "--bootstrap-server" in in_use.err
    finally:
        broker.kill()


def test_a_broker_without_an_authorizer_says_so(echoless: Command, tmp_path: Path) -> None:
    """SECURITY_DISABLED; what is in the coordinator waits for one."""
    broker = Echoless(tmp_path)
    broker.start()
    try:
        ran = echoless("acls", "list", "--bootstrap-server", broker.kafka_address)
        assert ran.code != 0
        assert "SECURITY_DISABLED" in ran.err
    finally:
        broker.kill()


def test_the_places_exclude_each_other(echoless: Command) -> None:
    """One of them is meant, and it is not clear which."""
    both = ("--data-dir", "x", "--coordinator", "zookeeper://127.0.0.1:1")
    ran = echoless("acls", "list", *both)
    assert ran.code != 0
    assert "not both" in ran.err
    assert echoless("acls", "list", "--coordinator", "embedded").code != 0
