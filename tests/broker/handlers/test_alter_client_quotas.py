"""AlterClientQuotas: what is stored, announced and refused."""

from __future__ import annotations

import json
import math

import pytest

from echoless.broker.authentication.user_nodes import alter_user, read_users
from echoless.broker.metadata.config_nodes import CHANGES
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.protocol.sasl.scram import new_credential
from tests.broker.quotas.quota_requests import alter, describe
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection

RATE = "producer_byte_rate"


@pytest.mark.parametrize(
    ("names", "path"),
    [
        ({"user": "alice"}, "users/alice"),
        ({"user": None}, "users/<default>"),
        ({"user": "a b*/c"}, "users/a%20b%2A%2Fc"),
        ({"user": "<default>"}, "users/%3Cdefault%3E"),
        ({"client_id": "app"}, "clients/app"),
        ({"client_id": None}, "clients/<default>"),
        ({"user": "alice", "client_id": "app"}, "users/alice/clients/app"),
        ({"user": "alice", "client_id": None}, "users/alice/clients/<default>"),
        ({"user": None, "client_id": None}, "users/<default>/clients/<default>"),
    ],
)
async def test_it_is_stored_as_kafka_stores_it(
    running: Running, kafka: RawConnection, names: dict[str, str | None], path: str
) -> None:
    """All values are texts, and the change is announced by the node's path."""
    tree = running.broker.tree
    assert await alter(kafka, {RATE: 1000.0, "request_percentage": 12.5}, **names) == 0
    stored = json.loads((await tree.read(f"/config/{path}")).data)
    assert stored == {"version": 1, "config": {RATE: "1000", "request_percentage": "12.5"}}
    (change,) = await tree.children(CHANGES)
    announced = json.loads((await tree.read(f"{CHANGES}/{change}")).data)
    assert announced == {"version": 2, "entity_path": path}


async def test_credentials_and_quotas_share_a_node(running: Running, kafka: RawConnection) -> None:
    """A change of either leaves the other alone, and `<default>` is not a user."""
    tree = running.broker.tree
    credential = new_credential(Mechanism.SCRAM_SHA_256, "pencil", 4096)
    await alter_user(tree, "alice", {Mechanism.SCRAM_SHA_256: credential})
    assert await alter(kafka, {RATE: 1.0}, user="alice") == 0
    assert await alter(kafka, {RATE: 2.0}, user=None) == 0
    assert list((await read_users(tree))["alice"]) == ["SCRAM-SHA-256", RATE]
    assert await alter(kafka, {RATE: None}, user="alice") == 0
    assert list((await read_users(tree))["alice"]) == ["SCRAM-SHA-256"]
    assert await describe(kafka) == (0, {(("user", None),): {RATE: 2.0}})


async def test_only_validated(running: Running, kafka: RawConnection) -> None:
    """Nothing is stored, but the codes are the same."""
    assert await alter(kafka, {RATE: 1.0}, validate_only=True, user="alice") == 0
    assert await alter(kafka, {"x": 1.0}, validate_only=True, user="alice") == 42
    assert running.broker.quotas.limits is None
    assert await describe(kafka) == (0, {})


@pytest.mark.parametrize("version", [0, 1])
async def test_removing_what_is_not_there(kafka: RawConnection, version: int) -> None:
    """Succeeds, as in Kafka."""
    assert await alter(kafka, {RATE: None}, version=version, user="alice") == 0


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"x": 1.0}, {"user": "alice"}),
        ({RATE: 0.5}, {"user": "alice"}),
        ({RATE: 0.0}, {"user": "alice"}),
        ({RATE: -1.0}, {"user": "alice"}),
        ({"request_percentage": math.nan}, {"user": "alice"}),
        ({"request_percentage": math.inf}, {"user": "alice"}),
        ({"connection_creation_rate": 1.0}, {"user": "alice"}),
        ({RATE: 1.0}, {"ip": "127.0.0.1"}),
        ({"connection_creation_rate": 1.0}, {"ip": "127.0.0.1", "user": "alice"}),
        ({RATE: 1.0}, {"user": ""}),
        ({RATE: 1.0}, {"user": ".."}),
        ({RATE: 1.0}, {"host": "x"}),
        ({RATE: 1.0}, {}),
    ],
)
async def test_what_is_refused(
    kafka: RawConnection, values: dict[str, float | None], names: dict[str, str | None]
) -> None:
    """42, and nothing of the entity is changed."""
    assert await alter(kafka, {**values, "consumer_byte_rate": 1.0}, **names) == 42
    assert await describe(kafka) == (0, {})
