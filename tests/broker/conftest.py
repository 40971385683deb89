"""Fixtures of the broker's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker in this process, with the default configuration."""
    async with in_process(tmp_path) as running:
        yield running


@pytest.fixture
async def kafka(running: Running) -> AsyncIterator[RawConnection]:
    """A connection to its Kafka port."""
    connection = await RawConnection.open(running.kafka_address)
    yield connection
    await connection.close()


@pytest.fixture
async def native(running: Running) -> AsyncIterator[NativeConnection]:
    """A connection to its native port."""
    connection = await NativeConnection.open(running.native_address)
    yield connection
    await connection.close()
