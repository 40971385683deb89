"""The producer while the brokers that it sends to are killed, and come back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from echoless.client.producer import Producer
from echoless.client.settings import Settings
from tests.support.cluster import running_cluster
from tests.support.stored_values import read_stored_values

pytestmark = [pytest.mark.cluster, pytest.mark.crash, pytest.mark.slow]

TOPIC = "orders"
KILLS = 4
RECORDS_BETWEEN_KILLS = 3000
SETTINGS = Settings(batch_records_max=20, request_timeout_s=5, retry_backoff_max_s=0.2)


def test_leaders_die_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """Every record is acknowledged and stored once, in order, over kills of the leader."""
    with running_cluster(tmp_path, zookeeper_session_timeout_ms="2000") as cluster:
        cluster.create_topic(TOPIC, 1, min_insync_replicas=2)
        with Producer(cluster.bootstrap, SETTINGS) as producer:
            sent = 0
            for _ in range(KILLS):
                leader = cluster.wait_for_leader(TOPIC, 0)
                killing = threading.Thread(target=cluster.kill, args=[leader])
                for number in range(sent, sent + RECORDS_BETWEEN_KILLS):
                    producer.send(TOPIC, b"%d" % number, partition=0)
                    if number == sent + RECORDS_BETWEEN_KILLS // 2:
                        killing.start()
                sent += RECORDS_BETWEEN_KILLS
                killing.join()
                producer.flush()
                cluster.start_broker(leader)
                cluster.wait_until(cluster.is_in_sync, "the killed broker has caught up")
            state = producer.state()
        cluster.wait_until(cluster.is_healed)
        leader = cluster.wait_for_leader(TOPIC, 0)
        (stored,) = read_stored_values(cluster.brokers[leader].kafka_address, TOPIC, 1)
    assert stored == [b"%d" % number for number in range(sent)]
    assert (state.producer_epoch, state.partitions[0].producer_epoch) == (0, 0)
