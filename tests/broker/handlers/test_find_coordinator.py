"""FindCoordinator: this broker for groups, errors for everything else, one key or many."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.broker.handlers.find_coordinator import API
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection

GROUP, TRANSACTION = 0, 1
VERSIONS = range(API.version_min, API.version_max + 1)


async def find(kafka: RawConnection, version: int, key_type: int, *keys: str) -> list[Any]:
    """The rows of the answer; before version 4 it is a row itself."""
    kind = {"key_type": key_type} if version >= 1 else {}
    if version < 4:
        return [await kafka.call("find_coordinator", version, key=keys[0], **kind)]
    response = await kafka.call("find_coordinator", version, coordinator_keys=keys, **kind)
    return list(response.coordinators)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_is_coordinated_by_this_broker(
    kafka: RawConnection, running: Running, version: int
) -> None:
    """At the address of the listener that was asked; version 0 knows no other kind of key."""
    (row,) = await find(kafka, version, GROUP, "g")
    assert (row.error_code, row.node_id) == (ErrorCode.NONE, running.broker.config.broker_id)
    assert f"{row.host}:{row.port}" == running.kafka_address


@pytest.mark.parametrize("version", VERSIONS[1:])
@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (2, ErrorCode.INVALID_REQUEST),
        (-1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_coordinators_do_not_exist(
    kafka: RawConnection, version: int, key_type: int, code: ErrorCode
) -> None:
    """With an error that clients do not retry, and the reason."""
    (row,) = await find(kafka, version, key_type, "t")
    assert (row.error_code, row.node_id, row.host, row.port) == (code, -1, "", -1)
    assert row.error_message


async def test_each_of_several_keys_is_answered(kafka: RawConnection) -> None:
    """In the order of the request (KIP-699)."""
    rows = await find(kafka, 4, GROUP, "a", "b", "a")
    assert [row.key for row in rows] == ["a", "b", "a"]
    assert await find(kafka, 4, GROUP) == []
