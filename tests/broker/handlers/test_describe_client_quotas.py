"""DescribeClientQuotas: which entities a filter finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.quotas.quota_requests import alter, component, describe
from tests.support.raw_client import RawConnection

EXACT, DEFAULT, ANY = range(3)
ALICE, ANYONE = ("user", "alice"), ("user", None)
APP, ANY_APP = ("client-id", "app"), ("client-id", None)
ALL = [(ALICE,), (ANYONE,), (ALICE, APP), (ANYONE, ANY_APP), (APP,)]


@pytest.fixture
async def quotas(kafka: RawConnection) -> None:
    for number, entity in enumerate(ALL):
        names = {kind.replace("-", "_"): name for kind, name in entity}
        assert await alter(kafka, {"producer_byte_rate": number + 1.0}, **names) == 0
    assert await alter(kafka, {"connection_creation_rate": 9.0}, ip="127.0.0.1") == 0


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.usefixtures("quotas")
async def test_all_of_them(kafka: RawConnection, version: int) -> None:
    """No component: everything, each with its own quotas."""
    code, found = await describe(kafka, version=version)
    expected: Any = {
        entity: {"producer_byte_rate": number + 1.0} for number, entity in enumerate(ALL)
    }
    expected[("ip", "127.0.0.1"),] = {"connection_creation_rate": 9.0}
    assert (code, found) == (0, expected)


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([("user", EXACT, "alice")], True, [(ALICE,)]),
        ([("user", EXACT, "alice")], False, [(ALICE,), (ALICE, APP)]),
        ([("user", DEFAULT, None)], True, [(ANYONE,)]),
        ([("user", ANY, None)], True, [(ALICE,), (ANYONE,)]),
        ([("client-id", ANY, None)], True, [(APP,)]),
        ([("user", ANY, None), ("client-id", EXACT, "app")], True, [(ALICE, APP)]),
        ([("user", DEFAULT, None), ("client-id", ANY, None)], False, [(ANYONE, ANY_APP)]),
        ([("user", EXACT, "bob")], False, []),
        ([("ip", ANY, None)], False, [(("ip", "127.0.0.1"),)]),
    ],
)
@pytest.mark.usefixtures("quotas")
async def test_a_filter(kafka: RawConnection, components: Any, strict: bool, expected: Any) -> None:
    """By name, default or any; strict leaves out what has other parts."""
    code, found = await describe(kafka, *(component(*one) for one in components), strict=strict)
    assert (code, sorted(found, key=str)) == (0, sorted(expected, key=str))


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], 42),
        ([("user", ANY, None), ("user", ANY, None)], 42),
        ([("user", ANY, None), ("ip", ANY, None)], 42),
        ([("user", EXACT, None)], 42),
        ([("user", 3, None)], 42),
        ([("host", ANY, None)], 35),
    ],
)
async def test_what_is_refused(kafka: RawConnection, components: Any, code: int) -> None:
    """The whole request."""
    assert await describe(kafka, *(component(*one) for one in components)) == (code, {})
