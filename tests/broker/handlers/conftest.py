"""Fixtures of the Kafka port's tests."""

from __future__ import annotations

import pytest

from tests.broker.handlers.one_producer import produce
from tests.support.raw_client import RawConnection, create_topic


@pytest.fixture
async def ten_records(kafka: RawConnection) -> None:
    """A topic `t` of one partition that holds ten records of producer 7."""
    await create_topic(kafka, "t", 1)
    await produce(kafka, 10)
