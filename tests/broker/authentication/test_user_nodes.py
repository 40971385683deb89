"""Users in the tree, as Apache Kafka 3.9 stores them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from echoless.broker.authentication import credentials, user_nodes
from echoless.broker.authentication.credentials import Credentials
from echoless.broker.authentication.user_nodes import (
    alter_user,
    credentials_in,
    decode_credential,
    encode_credential,
    read_users,
    user_path,
)
from echoless.broker.metadata.config_nodes import CHANGES, USERS
from echoless.broker.tree.node_tree import Create
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.protocol.sasl.scram import ScramCredential, new_credential
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 8192)
TEXT = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"


@pytest.fixture
def tree() -> MemoryNodeTree:
    return MemoryTree().connect()


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ("alice", "alice"),
        ("a b*/c", "a%20b%2A%2Fc"),  # vector 23
        ("CN=x,O=y", "CN%3Dx%2CO%3Dy"),
        ("Jürgen", "J%C3%BCrgen"),
        ("a.b_c-d~e", "a.b_c-d%7Ee"),
        ("a+b", "a%2Bb"),
    ],
)
async def test_a_user_is_a_node(tree: MemoryNodeTree, user: str, name: str) -> None:
    """Called as in a URL that Java wrote; the change is announced under the same name."""
    await alter_user(tree, user, {SHA_256: CREDENTIAL})
    assert user_path(user) == f"{USERS}/{name}"
    node = await tree.read(f"{USERS}/{name}")
    assert json.loads(node.data) == {"version": 1, "config": {"SCRAM-SHA-256": TEXT}}
    (change,) = await tree.children(CHANGES)
    assert change.startswith("config_change_")
    announced = json.loads((await tree.read(f"{CHANGES}/{change}")).data)
    assert announced == {"version": 2, "entity_path": f"users/{name}"}
    assert list(await read_users(tree)) == [user]


def test_a_credential_is_read_in_any_order() -> None:
    """And written in Kafka's."""
    assert encode_credential(CREDENTIAL) == TEXT
    assert decode_credential(",".join(reversed(TEXT.split(",")))) == CREDENTIAL


@pytest.mark.parametrize(
    "text",
    ["", "salt=c2FsdA==", TEXT + ",more=1", TEXT.replace("8192", "x"), TEXT.replace("c2Fs", "!")],
)
def test_a_credential_that_cannot_be_read_admits_no_one(text: str) -> None:
    """Exactly four parts, in base64, and a number."""
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the part
        decode_credential(text)
    assert credentials_in({"SCRAM-SHA-256": text}) == {}


async def test_what_else_a_user_has_survives(tree: MemoryNodeTree) -> None:
    """Quotas, and the credential of the other mechanism."""
    await tree.multi([Create("/config"), Create(USERS), Create(CHANGES)])
    config = {"producer_byte_rate": "1000", "SCRAM-SHA-512": TEXT}
    await tree.create(user_path("alice"), json.dumps({"version": 1, "config": config}).encode())
    await alter_user(tree, "alice", {SHA_256: CREDENTIAL})
    await alter_user(tree, "alice", {}, [SHA_512])
    stored = json.loads((await tree.read(user_path("alice"))).data)["config"]
    assert stored == {"producer_byte_rate": "1000", "SCRAM-SHA-256": TEXT}


async def test_all_changes_of_a_user_or_none(tree: MemoryNodeTree) -> None:
    """One that deletes what is not there changes nothing, and is not announced (vector 22)."""
    with pytest.raises(KafkaError) as caught:
        await alter_user(tree, "alice", {SHA_256: CREDENTIAL}, [SHA_512])
    assert caught.value.code == ErrorCode.RESOURCE_NOT_FOUND
    assert await read_users(tree) == {}
    assert await tree.children(CHANGES) == []


async def test_a_lost_race_is_run_again(
    tree: MemoryNodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither change is lost."""
    monkeypatch.setattr("echoless.broker.metadata.config_nodes._PAUSE_S", (0, 0))
    await alter_user(tree, "bob", {SHA_256: CREDENTIAL})

    async def rival() -> None:
        await alter_user(tree, "alice", {SHA_512: CREDENTIAL})

    tree.before_next_change(rival)
    await alter_user(tree, "alice", {SHA_256: CREDENTIAL})
    assert (await read_users(tree))["alice"].keys() == {"SCRAM-SHA-256", "SCRAM-SHA-512"}


async def test_changes_do_not_pile_up(
    tree: MemoryNodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest stay."""
    monkeypatch.setattr("echoless.broker.metadata.config_nodes._CHANGES_KEPT", 3)
    for number in range(5):
        await alter_user(tree, f"user-{number}", {SHA_256: CREDENTIAL})
    changes = await tree.children(CHANGES)
    entities = [json.loads((await tree.read(f"{CHANGES}/{one}")).data) for one in changes]
    assert [one["entity_path"] for one in entities] == [f"users/user-{n}" for n in (2, 3, 4)]


async def test_a_change_removes_few_old_ones(
    tree: MemoryNodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client does not wait for the removal of all that others have left."""
    monkeypatch.setattr("echoless.broker.metadata.config_nodes._CHANGES_KEPT", 3)
    await tree.multi([Create("/config"), Create(USERS), Create(CHANGES)])
    for _ in range(50):
        await tree.create_sequential(f"{CHANGES}/config_change_", b"{}")
    await alter_user(tree, "alice", {SHA_256: CREDENTIAL})
    assert len(await tree.children(CHANGES)) == 41
    for number in range(20):
        await alter_user(tree, f"user-{number}", {SHA_256: CREDENTIAL})
    assert len(await tree.children(CHANGES)) == 3


async def test_many_users_are_read_in_turns(
    tree: MemoryNodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have a turn at least after each 200; all are read."""
    await tree.multi([Create("/config"), Create(USERS), Create(CHANGES)])
    data = json.dumps({"version": 1, "config": {"SCRAM-SHA-256": TEXT}}).encode()
    for number in range(1000):
        await tree.create(user_path(f"user-{number}"), data)
    decoded: list[int] = []

    def counted(real: Any) -> Any:
        def count(*arguments: Any) -> Any:
            decoded[-1] += 1
            return real(*arguments)

        return count

    for module, name in ((user_nodes, "decode_config"), (credentials, "credentials_in")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    async with own_turns(decoded):
        known = Credentials()
        await known.start(tree)
        await known.close()
    assert known.find("user-999", SHA_256).is_real
    assert sum(decoded) == 2000
    assert max(decoded) <= 200


@asynccontextmanager
async def own_turns(counts: list[int]) -> AsyncIterator[None]:
    """Begins a new count in each turn of the loop."""

    async def tick() -> None:
        while True:
            counts.append(0)
            await asyncio.sleep(0)

    counts.append(0)
    ticker = asyncio.ensure_future(tick())
    yield
    ticker.cancel()


async def test_nodes_that_are_no_users_are_left_out(tree: MemoryNodeTree) -> None:
    """Quotas for everybody, what cannot be read, and a user without data."""
    await tree.multi([Create("/config"), Create(USERS)])
    await tree.create(f"{USERS}/<default>", b'{"version":1,"config":{"producer_byte_rate":"1"}}')
    await tree.create(f"{USERS}/broken", b"{")
    await tree.create(f"{USERS}/deep", b"[" * 100_000)
    await tree.create(f"{USERS}/empty")
    assert await read_users(tree) == {"empty": {}}


async def test_a_change_by_another_broker_is_seen() -> None:
    """A new password of a known user, and the deletion of one: both are announced."""
    shared = MemoryTree()
    here, there = shared.connect(), shared.connect()
    await alter_user(there, "alice", {SHA_256: CREDENTIAL})
    credentials = Credentials()
    await credentials.start(here)
    assert credentials.find("alice", SHA_256) == (CREDENTIAL, True)
    other = new_credential(SHA_256, "other", 4096)
    await alter_user(there, "alice", {SHA_256: other})
    await turns()
    assert credentials.find("alice", SHA_256) == (other, True)
    await there.delete(user_path("alice"))
    await turns()
    assert not credentials.find("alice", SHA_256).is_real
    await credentials.close()


async def test_brokers_make_up_the_same_credentials() -> None:
    """So that asking two of them, or one after a restart, tells nothing about an unknown user."""
    shared = MemoryTree()
    found = []
    for _ in range(2):
        credentials = Credentials()
        await credentials.start(shared.connect())
        found.append(credentials.find("mallory", SHA_256))
        await credentials.close()
    assert found[0] == found[1]
    assert base64.b64encode(found[0].credential.salt)
