"""Settings of brokers in ZooKeeper: all brokers follow them, and they are the nodes of Apache Kafka 3.9."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.metadata.broker_settings import READ_INTERVAL_S, BrokerSettings
from echoless.broker.tree.zookeeper import ZooKeeperNodeTree
from tests.broker.handlers.test_describe_configs import BROKER, describe
from tests.broker.handlers.test_incremental_alter_configs import SET, alter
from tests.support.in_process import in_process
from tests.support.raw_client import RawConnection
from tests.support.zookeeper import ZooKeeper
from tests.support.zookeeper_kafka import ZooKeeperKafka
from tests.toolchain import require

pytestmark = pytest.mark.cluster

BY_ANNOUNCEMENT_S = READ_INTERVAL_S / 2
"""Too short for the reading that finds what was not announced."""
KAFKAS_BROKER = 7
SEGMENT = "log.segment.bytes"


async def until(ask: Callable[[], Awaitable[bool]]) -> None:
    """Asks until it is so; fails once it can no longer be because of an announcement."""
    async with asyncio.timeout(BY_ANNOUNCEMENT_S):
        is_so = await ask()
        while not is_so:
            await asyncio.sleep(0.02)
            is_so = await ask()


async def set_to(kafka: RawConnection, name: str, value: str, broker: str = "") -> None:
    (row,) = await alter(kafka, (BROKER, broker, [(name, SET, value)]))
    assert (row.error_code, row.error_message) == (0, None)


async def shown(kafka: RawConnection, broker: str, name: str) -> tuple[Any, ...]:
    row = await describe(kafka, BROKER, broker, [name])
    return next(((one.value, one.config_source) for one in row.configs), ())


async def test_every_broker_of_a_cluster_follows(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    """A setting for all of them is in force on the others soon, one of a single broker on no other."""
    coordinator = f"zookeeper://{zookeeper.fresh_hosts()}"
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(
                in_process(tmp_path / str(one), broker_id=one, coordinator=coordinator)
            )
            for one in (1, 2)
        ]
        kafka = await RawConnection.open(first.kafka_address)
        heard = asyncio.Event()

        async def listener(_: frozenset[str]) -> None:
            heard.set()

        second.broker.settings.listen(listener)
        await set_to(kafka, SEGMENT, "1MiB")
        async with asyncio.timeout(BY_ANNOUNCEMENT_S):
            await heard.wait()
        await set_to(kafka, SEGMENT, "2MiB", "1")
        sizes = [one.broker.config.log_segment_bytes for one in (first, second)]
        assert sizes == [2**21, 2**20]
        await kafka.close()


async def test_apache_kafka_and_echoless_read_each_others_settings(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    """Those from before Kafka's start and from while it runs, in both directions."""
    require("kafka")
    hosts = zookeeper.fresh_hosts()
    tree = await ZooKeeperNodeTree.open(Config(coordinator=f"zookeeper://{hosts}"))
    ours = BrokerSettings(Config(broker_id=KAFKAS_BROKER))
    await ours.start(tree, is_shared=True)
    await ours.alter(of_all=True, edit=lambda _: {SEGMENT: "1048576"}, validate_only=False)
    broker = ZooKeeperKafka(tmp_path, hosts, KAFKAS_BROKER, {})
    await asyncio.to_thread(broker.start)
    try:
        kafka, own = await RawConnection.open(broker.address), str(KAFKAS_BROKER)

        async def kafka_shows(value: str, source: int) -> bool:
            return await shown(kafka, own, SEGMENT) == (value, source)

        await until(lambda: kafka_shows("1048576", 3))
        await ours.alter(of_all=False, edit=lambda _: {SEGMENT: "2097152"}, validate_only=False)
        await until(lambda: kafka_shows("2097152", 2))

        async def is_in_force() -> bool:
            return ours.dynamic.config.log_segment_bytes == 3 * 2**20

        await set_to(kafka, SEGMENT, str(3 * 2**20), own)
        await until(is_in_force)
        await kafka.close()
    finally:
        await ours.close()
        await tree.close()
        await asyncio.to_thread(broker.kill)
