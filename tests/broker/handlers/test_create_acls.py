"""CreateAcls: what is stored, what is refused, and what clients repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.broker.authorization import acl_store
from echoless.broker.config.names import Authorizer
from echoless.broker.config.values import Principals
from echoless.broker.network.request import ANONYMOUS
from echoless.broker.tree.node_tree import CoordinationError
from tests.broker.handlers.acl_requests import (
    ANY,
    CLUSTER,
    DENY,
    MATCH,
    WRITE,
    Row,
    create,
    describe,
)
from tests.support.in_process import Running, in_process
from tests.support.raw_client import RawConnection


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker whose anonymous clients are administrators."""
    settings = {"authorizer": Authorizer.ACL, "super_users": Principals([ANONYMOUS])}
    async with in_process(tmp_path, **settings) as running:
        yield running


async def announced(running: Running) -> list[str]:
    return await running.broker.tree.children("/kafka-acl-changes")


async def test_an_acl_that_exists_is_a_success(kafka: RawConnection, running: Running) -> None:
    """55: one entry, one announcement; several ACLs of a resource are announced together."""
    assert await create(kafka, Row()) == [0]
    assert await create(kafka, Row()) == [0]
    assert await describe(kafka) == (0, {Row()})
    assert len(await announced(running)) == 1
    assert await create(kafka, Row(operation=WRITE), Row(permission=DENY)) == [0, 0]
    assert len(await announced(running)) == 2


@pytest.mark.parametrize(
    "row",
    [
        Row(resource_type=CLUSTER, name="c"),  # 54
        Row(name=""),
        Row(name="a/b"),
        Row(name="a\0b"),
        Row(name=".."),
        Row(resource_type=0),
        Row(resource_type=ANY),
        Row(resource_type=9),
        Row(pattern_type=MATCH),
        Row(pattern_type=ANY),
        Row(pattern_type=0),
        Row(operation=0),
        Row(operation=ANY),
        Row(operation=99),
        Row(permission=ANY),
        Row(permission=0),
        Row(principal="alice"),
        Row(principal="User:"),
        Row(principal=""),
        Row(host=""),
    ],
    ids=str,
)
async def test_what_is_no_acl_is_refused(kafka: RawConnection, row: Row) -> None:
    """54: 42 for it; the others of the request are created."""
    assert await create(kafka, Row("before"), row, Row("after")) == [0, 42, 0]
    assert await describe(kafka) == (0, {Row("before"), Row("after")})


async def test_hosts_are_stored_as_kafka_compares_them(kafka: RawConnection) -> None:
    """IPv6 uncompressed; a filter may have it in any form."""
    await create(kafka, Row(host="::1"))
    stored = Row(host="0:0:0:0:0:0:0:1")
    assert await describe(kafka, host_filter="::1") == (0, {stored})
    assert await describe(kafka, host_filter="0:0::1") == (0, {stored})


async def test_a_change_that_may_not_have_been_made(
    kafka: RawConnection, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7, which clients repeat; the other ACLs of the request are created."""
    monkeypatch.setattr(acl_store, "_RETRY_S", (0.0, 0.0))
    tree = running.broker.tree
    create_node = tree.create

    async def refuse(path: str, *args: object, **more: object) -> None:
        if path.endswith("/orders"):
            raise CoordinationError("no")
        await create_node(path, *args, **more)

    monkeypatch.setattr(tree, "create", refuse)
    assert await create(kafka, Row(), Row("u")) == [7, 0]
    assert await describe(kafka) == (0, {Row("u")})
