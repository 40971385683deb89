"""InitProducerId: a new id with every request, and what is refused."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from echoless.broker.handlers.init_producer_id import API
from echoless.protocol.errors import ErrorCode
from tests.support.raw_client import RawConnection

VERSIONS = range(API.version_min, API.version_max + 1)


async def init(
    kafka: RawConnection, version: int, transactional_id: str | None = None, **old: int
) -> Any:
    """The response."""
    return await kafka.call(
        "init_producer_id",
        version,
        transactional_id=transactional_id,
        transaction_timeout=datetime.timedelta(minutes=1),
        **old,
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_request_gets_a_new_id(kafka: RawConnection, version: int) -> None:
    """With epoch 0."""
    first, second = [await init(kafka, version) for _ in range(2)]
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (0, 0, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_an_old_id_is_replaced_by_a_new_one(kafka: RawConnection, version: int) -> None:
    """Only transactions would go on with it (KIP-360); an id without an epoch, or the reverse, is wrong."""
    new = await init(kafka, version, producer_id=7, producer_epoch=3)
    assert (new.error_code, new.producer_epoch) == (0, 0)
    assert new.producer_id != 7
    for old in ({"producer_id": 7}, {"producer_epoch": 3}):
        response = await init(kafka, version, **old)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert (response.producer_id, response.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_empty_transactional_id_is_refused(kafka: RawConnection, version: int) -> None:
    """It is none, and a producer without one sends null."""
    response = await init(kafka, version, "")
    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
