"""Quotas shared with Apache Kafka 3.9 in ZooKeeper: each obeys what the other writes, and its tools set them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.metadata.config_nodes import DEFAULT_NAME
from echoless.broker.metrics import Metrics
from echoless.broker.network.request import ANONYMOUS, Peer
from echoless.broker.quotas.quota import Entity, QuotaKey
from echoless.broker.quotas.quota_nodes import alter_quotas
from echoless.broker.quotas.quotas import READ_INTERVAL_S, Quotas
from echoless.broker.tree.zookeeper import ZooKeeperNodeTree
from tests.broker.quotas.quota_requests import alter, describe
from tests.support.apache_kafka import JARS, KafkaVersion
from tests.support.in_process import in_process
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData
from tests.support.zookeeper import ZooKeeper
from tests.support.zookeeper_kafka import ZooKeeperKafka
from tests.toolchain import require

pytestmark = pytest.mark.cluster

KAFKAS_BROKER = 7
BATCH = plain_batch([b"x" * 100_000]).encode()
BY_ANNOUNCEMENT_S = READ_INTERVAL_S / 2
"""Too short for the reading that finds what was not announced."""
COMMAND_TIMEOUT_S = 120.0
LIMIT = 9000
"""A little less than a tenth of a batch: a pause of about a second."""


@pytest.fixture
def hosts(zookeeper: ZooKeeper) -> str:
    require("kafka")
    return zookeeper.fresh_hosts()


async def kafka_configs(address: str, *arguments: str) -> str:
    """Runs kafka-configs.sh and returns its output."""
    main = [
        "java",
        *KafkaVersion.V3_9.quick_start_jvm,
        "-cp",
        f"{JARS}/*",
        "kafka.admin.ConfigCommand",
    ]
    done = await asyncio.to_thread(
        subprocess.run,
        [*main, "--bootstrap-server", address, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_kafkas_tool_works_against_echoless(tmp_path: Path) -> None:
    """kafka-configs.sh sets and shows quotas and credentials of a user, and removes them."""
    require("java", "kafka")
    alice = ("--entity-type", "users", "--entity-name", "alice")
    async with in_process(tmp_path) as running:
        at = running.kafka_address
        for add in ("producer_byte_rate=1024", "SCRAM-SHA-256=[iterations=4096,password=pencil]"):
            await kafka_configs(at, "--alter", *alice, "--add-config", add)
        shown = await kafka_configs(at, "--describe", "--entity-type", "users")
        assert "Quota configs for user-principal 'alice' are producer_byte_rate=1024.0" in shown
        assert "SCRAM-SHA-256=iterations=4096" in shown
        await kafka_configs(at, "--alter", *alice, "--delete-config", "producer_byte_rate")
        kafka = await RawConnection.open(at)
        assert await describe(kafka) == (0, {})
        await kafka.close()


@pytest.fixture
async def tree(hosts: str) -> AsyncIterator[ZooKeeperNodeTree]:
    """The tree as an Echoless broker opens it; a broker would join Kafka's cluster."""
    tree = await ZooKeeperNodeTree.open(Config(coordinator=f"zookeeper://{hosts}"))
    yield tree
    await tree.close()


async def until(ask: Callable[[], Awaitable[bool]]) -> None:
    """Asks until it is so; fails once it can no longer be because of an announcement."""
    async with asyncio.timeout(BY_ANNOUNCEMENT_S):
        is_so = await ask()
        while not is_so:
            await asyncio.sleep(0.02)
            is_so = await ask()


async def knows_a_broker(kafka: RawConnection) -> bool:
    return bool((await kafka.call("metadata", 1, topics=())).brokers)


async def test_both_obey_what_the_other_writes(
    tmp_path: Path, hosts: str, tree: ZooKeeperNodeTree
) -> None:
    """Quotas from before Kafka's start and from while it runs, in both directions."""
    key = QuotaKey.PRODUCER_BYTE_RATE
    nobody = Entity(user="n%2Fx", client_id=DEFAULT_NAME)
    await alter_quotas(tree, nobody, {key: "5"})
    broker = ZooKeeperKafka(tmp_path, hosts, KAFKAS_BROKER, {})
    await asyncio.to_thread(broker.start)
    quotas = Quotas(Metrics())
    try:
        kafka = await RawConnection.open(broker.address)
        stored = {(("user", "n/x"), ("client-id", None)): {key.value: 5.0}}
        code, found = await describe(kafka)
        assert (code, {frozenset(one): value for one, value in found.items()}) == (
            0,
            {frozenset(one): value for one, value in stored.items()},
        )

        await until(lambda: knows_a_broker(kafka))  # Kafka says that it has started before that
        await create_topic(kafka, "t", 1)
        assert not await is_throttled(kafka)
        await alter_quotas(tree, Entity(user="ANONYMOUS"), {key: str(LIMIT)})
        await until(lambda: is_throttled(kafka))

        await quotas.start(tree, is_shared=True)
        assert await alter(kafka, {"producer_byte_rate": 7.0}, user="ANONYMOUS") == 0
        assert await alter(kafka, {"request_percentage": 50.5}, user=None, client_id="a~b*") == 0
        await until(lambda: has_limits(quotas, 3))
        peer = Peer(1, "127.0.0.1:1", principal=ANONYMOUS)
        meters = quotas.meters(peer, "a~b*")
        assert meters.produced is not None
        assert meters.request_time is not None
        assert (meters.produced.limit, meters.request_time.limit) == (7.0, 50.5)
        await kafka.close()
    finally:
        await quotas.close()
        await asyncio.to_thread(broker.kill)


async def is_throttled(kafka: RawConnection) -> bool:
    """Whether a produce request is told to pause."""
    kafka.send_produce(9, 1, [PartitionData("t", 0, BATCH)])
    answer = await kafka.receive_response("produce", 9)
    (row,) = answer.responses[0].partition_responses
    assert int(row.error_code) == 0
    return bool(answer.throttle_time)


async def has_limits(quotas: Quotas, count: int) -> bool:
    return len(quotas.limits or {}) == count
