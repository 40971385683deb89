"""How fast connections may be made: in all, and by each address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.values import Address
from echoless.broker.metrics import Metrics
from echoless.broker.quotas import measures as measures_module
from echoless.broker.quotas.entrance import ConnectionRateQuota
from echoless.broker.quotas.quotas import Quotas
from tests.broker.quotas.quota_requests import Clock, alter
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_client import ConnectionEndedError, RawConnection

BURST = 10
"""How many connections an address may make at once at a rate of one per second."""
BROKER_BURST = 11
"""How many all addresses together may."""
Served = asyncio.Task[Any]


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
    with pytest.raises(
        (asyncio.IncompleteReadError, ConnectionError)
    ):  # a reset, if it is sent first
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


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[Running, Clock]]:
    """A broker that allows one connection per second, eleven at once, and its clock."""
    async with in_process(tmp_path, connection_creation_rate_max=1) as running:
        clock = running.broker.quotas.clock = Clock()
        yield running, clock


async def served(address: str, ends: AsyncExitStack, source: str = "127.0.0.1") -> Served:
    """Is done when a new connection, which stays open, has been served."""
    connection = await RawConnection.open(address, source=source)
    ends.push_async_callback(connection.close)
    task = asyncio.create_task(connection.call("find_coordinator", 1, key="g", key_type=0))
    ends.callback(task.cancel)
    return task


@pytest.mark.slow
async def test_the_rate_of_the_broker_delays(slow: tuple[Running, Clock]) -> None:
    """A connection beyond it is served as soon as the rate is kept, one by one."""
    running, clock = slow
    address = running.kafka_address
    async with AsyncExitStack() as ends:
        tasks = [await served(address, ends) for _ in range(BROKER_BURST + 3)]
        await asyncio.gather(*tasks[:BROKER_BURST])
        for number in range(BROKER_BURST, BROKER_BURST + 2):
            assert not any(one.done() for one in tasks[number:])
            clock.now += 1
            await tasks[number]
        clock.now += 1 + BROKER_BURST
        await tasks[-1]
        assert all([await answered(address) for _ in range(BROKER_BURST - 1)])


@pytest.mark.slow
async def test_an_address_does_not_hold_up_another(slow: tuple[Running, Clock]) -> None:
    """However many of its connections wait, that of another is the second at the latest."""
    running, clock = slow
    address = running.kafka_address
    async with AsyncExitStack() as ends:
        many = [await served(address, ends) for _ in range(4 * BROKER_BURST)]
        await asyncio.gather(*many[:BROKER_BURST])
        other = await served(address, ends, source="127.0.0.2")
        async with asyncio.timeout(30):
            while running.broker.metrics.connections_open <= len(many):  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.01)
        clock.now += 2
        await asyncio.gather(other, many[BROKER_BURST])
        assert not any(one.done() for one in many[BROKER_BURST + 1 :])


class FakeConnection:
    """Knows whether it has been muted and unmuted."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.is_muted = False
        self.unmuted = asyncio.Event()

    def mute(self) -> None:
        self.is_muted = True

    def unmute(self) -> None:
        self.unmuted.set()


@pytest.mark.slow
async def test_a_connection_that_was_lost_has_no_turn() -> None:
    """It costs those after it no time."""
    clock = Clock()
    entrance = ConnectionRateQuota(1, Quotas(Metrics(), clock))
    connections: list[Any] = [FakeConnection() for _ in range(BROKER_BURST + 2)]
    for one in connections:
        entrance.enter(one)
    *at_once, lost, last = connections
    assert [one.is_muted for one in connections] == [False] * len(at_once) + [True, True]
    entrance.leave(lost)
    clock.now += 1
    await last.unmuted.wait()
    assert not lost.unmuted.is_set()


async def test_connections_of_brokers_do_not_wait(slow: tuple[Running, Clock]) -> None:
    """The native port answers while connections to the other wait."""
    running, _ = slow
    async with AsyncExitStack() as ends:
        tasks = [await served(running.kafka_address, ends) for _ in range(2 * BROKER_BURST)]
        await asyncio.gather(*tasks[:BROKER_BURST])
        native = await NativeConnection.open(running.native_address)
        ends.push_async_callback(native.close)
        assert (await native.call("metadata"))["error"]["code"] == 0


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Running, Clock]]:
    """A broker that allows two connections per second, one of them on EXTERNAL, and one on NATIVE."""
    rate = {"connection_creation_rate_max": 1}
    async with in_process(
        tmp_path,
        listen=(Address("127.0.0.1", 0), Address("127.0.0.1", 0)),
        connection_creation_rate_max=2,
        listener_overrides={"EXTERNAL": rate, "NATIVE": rate},
    ) as running:
        clock = running.broker.quotas.clock = Clock()
        yield running, clock


async def test_a_listener_may_have_a_rate_of_its_own(two: tuple[Running, Clock]) -> None:
    """Its connections wait for it, and leave the rest of the broker's rate to the others."""
    running, clock = two
    assert running.external_address is not None
    async with AsyncExitStack() as ends:
        outside = [await served(running.external_address, ends) for _ in range(BROKER_BURST + 2)]
        await asyncio.gather(*outside[:BROKER_BURST])
        inside = [await served(running.kafka_address, ends) for _ in range(BROKER_BURST + 1)]
        await asyncio.gather(*inside[:BROKER_BURST])
        assert not any(one.done() for one in [*outside[BROKER_BURST:], inside[-1]])
        clock.now += 1  # two of the broker, one of the listener
        await asyncio.gather(outside[BROKER_BURST], inside[-1])
        assert not outside[-1].done()


async def test_a_connection_passes_both_rates(two: tuple[Running, Clock]) -> None:
    """One that its listener lets in may still wait for the broker's rate, and one that is lost there has no turn."""
    running, clock = two
    assert running.external_address is not None
    async with AsyncExitStack() as ends:
        inside = [await served(running.kafka_address, ends) for _ in range(2 * BROKER_BURST)]
        await asyncio.gather(*inside)
        outside = [await served(running.external_address, ends) for _ in range(3)]
        native = await NativeConnection.open(running.native_address)
        ends.push_async_callback(native.close)
        assert (await native.call("metadata"))["error"]["code"] == 0, "between brokers"
        assert not any(one.done() for one in outside)
        clock.now += 1
        await asyncio.gather(*outside[:2])
        assert not outside[2].done()


async def test_brokers_wait_for_a_rate_of_their_own_listener(two: tuple[Running, Clock]) -> None:
    """As in Kafka: whoever sets it means it."""
    running, clock = two
    async with AsyncExitStack() as ends:
        asked = []
        for _ in range(BROKER_BURST + 1):
            native = await NativeConnection.open(running.native_address)
            ends.push_async_callback(native.close)
            asked.append(asyncio.create_task(native.call("metadata")))
        await asyncio.gather(*asked[:-1])
        assert not asked[-1].done()
        clock.now += 1
        await asked[-1]


async def test_measures_that_count_no_longer_are_forgotten(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many are held as addresses have made connections lately; no use is forgotten while it counts."""
    monkeypatch.setattr(measures_module, "MEASURES_MAX", 10)
    monkeypatch.setattr(measures_module, "CLIENTS_PER_SWEEP", 1)
    await alter(kafka, {"connection_creation_rate": 5.0}, ip=None)
    quotas: Quotas = running.broker.quotas
    clock = quotas.clock = Clock()
    for number in range(100):
        rate = quotas.address_rate(f"10.0.0.{number}")
        assert rate is not None
        rate.record(1, clock())
        clock.now += 1
        assert len(quotas._rates) <= 13
    for number in range(100):
        rate = quotas.address_rate(f"2001:db8::{number:x}")
        assert rate is not None
        rate.record(1, clock())
    assert len(quotas._rates) <= 24  # with those of the last IPv4 addresses
    assert rate.throttle_ms(clock())
