"""DeleteAcls: what filters find and remove."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.broker.config.names import Authorizer
from echoless.broker.config.values import Principals
from echoless.broker.network.request import ANONYMOUS
from tests.broker.handlers.acl_requests import (
    DENY,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    WRITE,
    Row,
    create,
    delete,
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


@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
async def test_an_unknown_word_in_a_filter_is_refused(kafka: RawConnection, field: str) -> None:
    """42, and nothing is removed; the other filters of the request are obeyed."""
    await create(kafka, Row(), Row("u"))
    for unknown in (0, 99):
        assert await describe(kafka, **{field: unknown}) == (42, set())
        results = await delete(kafka, {field: unknown}, {"resource_name_filter": "missing"})
        assert results == [(42, set()), (0, set())]
    assert await describe(kafka) == (0, {Row(), Row("u")})


async def test_delete_by_match(kafka: RawConnection, running: Running) -> None:
    """56, 57: literal, wildcard and prefix go; a resource without ACLs has no node."""
    rows = {Row("orders"), Row("*"), Row("or", pattern_type=PREFIXED)}
    await create(kafka, *rows, Row("other"))
    match = {"resource_name_filter": "orders", "pattern_type_filter": MATCH}
    assert await delete(kafka, match) == [(0, rows)]
    assert await describe(kafka) == (0, {Row("other")})
    tree = running.broker.tree
    assert await tree.children("/kafka-acl/Topic") == ["other"]
    assert await tree.children("/kafka-acl-extended/prefixed/Topic") == []


async def test_one_of_several_is_removed(kafka: RawConnection) -> None:
    """The others of the resource stay in force (CVE-2024-27309); two filters both report it."""
    rows = [Row(operation=READ), Row(operation=WRITE), Row(permission=DENY)]
    await create(kafka, *rows)
    one = {"operation": WRITE}
    assert await delete(kafka, one, {**one, "pattern_type_filter": LITERAL}) == [
        (0, {rows[1]}),
        (0, {rows[1]}),
    ]
    assert await describe(kafka) == (0, {rows[0], rows[2]})
