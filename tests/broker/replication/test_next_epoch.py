"""Leader epochs of the same leader under load: librdkafka's producer learns the offset of every record."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Final, Self

import pytest
from confluent_kafka import KafkaError, Message, Producer

from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.support.cluster import Cluster
from tests.support.raw_client import RawConnection, nested
from tests.support.stored_values import read_stored_values

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TOPIC: Final = "orders"
LEADER: Final = 1
EPOCHS: Final = 5
SETTINGS: Final = {
    # No doubt about the lead and no lagging follower, however slow this machine is.
    "zookeeper_session_timeout_ms": "30000",
    "replica_lag_time_max_ms": "60000",
}
SLOW: Final = {
    "produce": {"type": "delay_request", "ms": [2, 8]},
    "replica_fetch": {"type": "delay_response", "ms": [20, 40]},
}
"""So that whenever an epoch begins some batches wait for replicas, and others of the connection are on their way."""


class NumberedProducer:
    """An idempotent producer in a thread, at full speed; for the duration of the block."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.offsets: list[int | None] = []
        """The offset of each record, in the order in which they were acknowledged."""
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._client = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                # It has at most five batches of a partition in flight, and none beside one of five records.
                "batch.num.messages": 1,
                "queue.buffering.max.messages": 500,
                "log_level": 2,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._client.produce(
                    TOPIC, b"%d" % self.sent, partition=0, on_delivery=self._on_delivery
                )
            except BufferError:
                self._client.poll(0.01)
                continue
            self.sent += 1
            self._client.poll(0)
        if left := self._client.flush(60):
            self.failures.append(f"{left} records were never acknowledged")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        self.offsets.append(message.offset())


async def move(cluster: Cluster, *replicas: int) -> None:
    """Returns when these brokers alone have the replicas, all in sync."""
    connection = await RawConnection.open(cluster.brokers[LEADER].kafka_address)
    api = "alter_partition_reassignments"
    row = nested(api, 0, "ReassignablePartition")(partition_index=0, replicas=replicas)
    topic = nested(api, 0, "ReassignableTopic")(name=TOPIC, partitions=(row,))
    response: Any = await connection.call(api, 0, topics=(topic,))
    await connection.close()
    assert response.responses[0].partitions[0].error_code == 0

    def is_so() -> bool:
        row = cluster.leader_rows().get((TOPIC, 0))
        return row is not None and row.isr == row.replicas == {*replicas}

    cluster.wait_until(is_so, f"{replicas} are in sync")


def test_every_offset_is_known_whichever_epoch_commits_it(tmp_path: Path) -> None:
    """A reassignment ends in a new epoch of the leader; no record is without an offset, missing, twice or out of order."""
    with Cluster(tmp_path, SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic(TOPIC, 1, leader=LEADER)
        faults = Faults(Admin(cluster.brokers[LEADER].admin_address))
        for api, action in SLOW.items():
            faults.add(action, match={"api": api})
        with NumberedProducer(cluster.bootstrap) as producer:
            while cluster.leader_rows()[TOPIC, 0].leader_epoch < EPOCHS:
                for replicas in ((1, 2), (1, 2, 3)):
                    asyncio.run(move(cluster, *replicas))
        assert not producer.failures
        assert cluster.leader(TOPIC, 0) == LEADER
        assert producer.offsets == list(range(producer.sent))
        (stored,) = read_stored_values(cluster.brokers[LEADER].kafka_address, TOPIC, 1)
        assert stored == [b"%d" % number for number in range(producer.sent)]
