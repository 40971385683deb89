"""DescribeAcls, and with it what all three ACL requests have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.broker.config.names import Authorizer
from echoless.broker.config.values import Principals
from echoless.broker.network.request import ANONYMOUS
from echoless.protocol.acl import AclOperation
from tests.broker.handlers.acl_requests import (
    ALLOW,
    DENY,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    Row,
    create,
    delete,
    describe,
)
from tests.support.acls import AclEditor
from tests.support.in_process import Running, in_process
from tests.support.raw_client import RawConnection


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker whose anonymous clients are administrators."""
    settings = {"authorizer": Authorizer.ACL, "super_users": Principals([ANONYMOUS])}
    async with in_process(tmp_path, **settings) as running:
        yield running


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_version_creates_finds_and_removes(kafka: RawConnection, version: int) -> None:
    """Every field comes back as it was sent."""
    rows = [Row(), Row("app-", 5, PREFIXED, "User:*", "10.0.0.1", WRITE, DENY)]
    assert await create(kafka, *rows, version=version) == [0, 0]
    assert await describe(kafka, version) == (0, set(rows))
    assert await delete(kafka, {}, version=version) == [(0, set(rows))]
    assert await describe(kafka, version) == (0, set())


async def test_filters(kafka: RawConnection) -> None:
    """MATCH finds every pattern that covers a name, ANY those of exactly this name."""
    literal, wildcard = Row("orders"), Row("*")
    prefix, other = Row("or", pattern_type=PREFIXED), Row("other")
    await create(kafka, literal, wildcard, prefix, other)
    named = {"resource_name_filter": "orders", "resource_type_filter": TOPIC}
    assert await describe(kafka, **named, pattern_type_filter=MATCH) == (
        0,
        {literal, wildcard, prefix},
    )
    assert await describe(kafka, **named) == (0, {literal})
    assert await describe(kafka, pattern_type_filter=PREFIXED) == (0, {prefix})
    assert await describe(kafka, principal_filter="User:bob") == (0, set())
    assert await describe(kafka, operation=WRITE) == (0, set())
    assert await describe(
        kafka, permission_type=ALLOW, operation=READ, resource_name_filter="*"
    ) == (
        0,
        {wildcard},
    )


async def test_without_the_right(tmp_path: Path) -> None:
    """53: 31 in each row; Describe on the cluster is enough to look, Alter to change."""
    async with in_process(tmp_path, authorizer=Authorizer.ACL) as running:
        kafka = await RawConnection.open(running.kafka_address)
        assert await describe(kafka) == (31, set())
        assert await create(kafka, Row(), Row()) == [31, 31]
        assert await delete(kafka, {}, {}) == [(31, set())] * 2
        acls = AclEditor(running.broker.access)
        await acls.allow(AclOperation.DESCRIBE)
        code, found = await describe(kafka)
        assert (code, len(found)) == (0, 1)
        assert await create(kafka, Row()) == [31]
        await acls.allow(AclOperation.ALTER)
        assert await create(kafka, Row()) == [0]
        assert await delete(kafka, {"principal_filter": "User:alice"}) == [(0, {Row()})]
        await kafka.close()


async def test_without_an_authorizer(tmp_path: Path) -> None:
    """53: 54 in each row."""
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        assert await describe(kafka) == (54, set())
        assert await create(kafka, Row(), Row()) == [54, 54]
        assert await delete(kafka, {}, {}) == [(54, set())] * 2
        await kafka.close()
