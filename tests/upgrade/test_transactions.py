"""Transactions in a rolling upgrade: none before all brokers speak them, and replicas of both versions copy from each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_transaction import find
from tests.support.cluster import Cluster
from tests.support.echoless import SOURCES
from tests.support.raw_client import RawConnection
from tests.toolchain import require
from tests.transactions.librdkafka import create_topic, read, send, transactional
from tests.upgrade.releases import Release
from tests.upgrade.rolling import roll

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.time_limit(300)]

_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_PLAIN = [f"plain-{number}" for number in range(6)]


async def announced(cluster: Cluster, broker_id: int) -> int:
    """The finalized `transaction.version` by one broker's ApiVersions; 0 for none."""
    kafka = await RawConnection.open(cluster.brokers[broker_id].kafka_address)
    answer = await kafka.call(
        "api_versions", 4, client_software_name="x", client_software_version="1"
    )
    await kafka.close()
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    return int(levels.get("transaction.version", 0))


async def coordinator_error(cluster: Cluster, broker_id: int) -> int:
    """The code of FindCoordinator for a transactional id."""
    kafka = await RawConnection.open(cluster.brokers[broker_id].kafka_address)
    answer = await find(kafka, 3)
    await kafka.close()
    return int(answer.error_code)


def write_plain(cluster: Cluster) -> None:
    """Writes some records of an idempotent producer, which every replica keeps in mind."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    send(producer, _PLAIN)


async def test_transactions_wait_for_the_last_broker(tmp_path: Path) -> None:
    """Replicas without data copy from the other version in both directions; then the newest broker's start lets transactions begin."""
    require(Release.V0_2.tool_name)
    with Cluster(tmp_path, {"min_insync_replicas": "2"}, tree=Release.V0_2.tree) as cluster:
        cluster.start()
        create_topic(cluster.bootstrap, replicas=3)
        write_plain(cluster)
        roll(cluster, [1], SOURCES, is_emptied=True)
        roll(cluster, [3], Release.V0_2.tree, is_emptied=True)
        roll(cluster, [2], SOURCES)
        write_plain(cluster)
        roll(cluster, [3], Release.V0_2.tree, is_emptied=True)
        for broker_id in (1, 2):
            assert await announced(cluster, broker_id) == 0
            assert await coordinator_error(cluster, broker_id) == _REFUSED
        roll(cluster, [3], SOURCES)
        cluster.wait_until(lambda: "level 1 from now on" in _logs(cluster), "the level is raised")
        producer = transactional(cluster.bootstrap)
        for is_committed, value in ((False, "aborted"), (True, "committed")):
            producer.begin_transaction()
            send(producer, [value])
            if is_committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        assert [await announced(cluster, one) for one in cluster.brokers] == [2, 2, 2]
        wanted = sorted([*_PLAIN, *_PLAIN, "committed"])
        cluster.wait_until(lambda: read(cluster.bootstrap) == wanted, "the commit is read")
        roll(cluster, [1], SOURCES, is_emptied=True)
        assert read(cluster.bootstrap) == wanted


def _logs(cluster: Cluster) -> str:
    return "".join(broker.process.log() for broker in cluster.brokers.values())
