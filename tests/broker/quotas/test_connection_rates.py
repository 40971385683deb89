"""How fast connections may be made: in all, and by each address."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.quotas import quotas as quotas_module
from broker.quotas.quotas import Quotas
from tests.broker.quotas.quota_requests import Clock, alter
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_client import ConnectionEndedError, RawConnection

BURST = 10
"""Ten seconds' worth of one connection per second."""


async def answered(address: str) -> bool:
    """Whether a new connection is served."""
    connection = await RawConnection.open(address)
    try:
        await connection.call("find_coordinator", 1, key="g", key_type=0)
    except ConnectionEndedError:
        return False
    finally:
        await connection.close()
    return True


async def test_an_address_that_connects_too_often_is_refused(
    running: Running, kafka: RawConnection
) -> None:
    """On both ports together; what was refused is not counted, so it is served again in time."""
    clock = running.broker.quotas.clock = Clock()
    assert await alter(kafka, {"connection_creation_rate": 1.0}, ip="127.0.0.1") == 0
    assert [await answered(running.kafka_address) for _ in range(BURST + 3)] == [
        *[True] * BURST,
        *[False] * 3,
    ]
    native = await NativeConnection.open(running.native_address)
    with pytest.raises(asyncio.IncompleteReadError):
        await native.call("metadata")
    await native.close()
    assert running.broker.metrics.connections_refused_total == 4
    clock.now += 12
    assert await answered(running.kafka_address)


async def test_other_addresses_are_served(running: Running, kafka: RawConnection) -> None:
    """The quota of another address, and of the default where there is one of its own."""
    running.broker.quotas.clock = Clock()
    await alter(kafka, {"connection_creation_rate": 1.0}, ip="127.0.0.2")
    await alter(kafka, {"connection_creation_rate": 1.0}, ip=None)
    await alter(kafka, {"connection_creation_rate": 100.0}, ip="127.0.0.1")
    assert all([await answered(running.kafka_address) for _ in range(2 * BURST)])


async def test_the_rate_of_the_broker_delays(tmp_path: Path) -> None:
    """A connection beyond it is served as soon as the rate is kept."""
    async with in_process(tmp_path, connection_creation_rate_max=1) as running:
        running.broker.quotas.clock = Clock()
        for _ in range(BURST):
            assert await answered(running.kafka_address)
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        assert await answered(running.kafka_address)
        assert round(1000 * (loop.time() - began_at)) >= 1000


async def test_connections_of_brokers_do_not_wait(tmp_path: Path) -> None:
    """The native port answers while a connection to the other would have to wait for longer than a test does."""
    async with in_process(tmp_path, connection_creation_rate_max=1) as running:
        running.broker.quotas.clock = Clock()
        waiting = [await RawConnection.open(running.kafka_address) for _ in range(6 * BURST)]
        native = await NativeConnection.open(running.native_address)
        assert (await native.call("metadata"))["error"]["code"] == 0
        for connection in (*waiting, native):
            await connection.close()


async def test_measures_are_bounded(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many addresses and client ids there are."""
    monkeypatch.setattr(quotas_module, "METERS_MAX", 10)
    await alter(kafka, {"connection_creation_rate": 5.0}, ip=None)
    quotas: Quotas = running.broker.quotas
    for number in range(100):
        rate = quotas.address_rate(f"10.0.0.{number}")
        assert rate is not None
        rate.record(1, quotas.clock())
        assert len(quotas._rates) <= 10
