"""The promise, the hard way: librdkafka at full speed, answers lost, the broker killed 25 times; `make proof` kills brokers for longer."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.cluster_security import ClusterSecurity
from tests.support.echoless import Echoless
from tests.support.lossy_proxy import FAULT_AFTER_CHUNKS_MAX, LossyProxy
from tests.support.stored_values import read_stored_values

pytestmark = [pytest.mark.crash, pytest.mark.slow]

PARTITIONS = 4
RECORDS_BETWEEN_KILLS_MAX = 1500
PROGRESS_TIMEOUT_S = 120
TOPIC = "killed"
CHUNKS_MAX_SECURED = 20
"""Answers of a connection before a fault, at most: a TLS handshake and a log-in take eight of them."""
_VALUE = struct.Struct(">iq")
"""Producer number, and its running number in the partition."""


class NumberedProducer:
    """An idempotent librdkafka producer that numbers its records per partition."""

    def __init__(
        self, number: int, address: str, security: Mapping[str, str] | None = None
    ) -> None:
        self.sent = [0] * PARTITIONS
        self.acknowledged = [0] * PARTITIONS
        self.failures: list[str] = []
        self._number = number
        self._client = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "queue.buffering.max.messages": 5000,
                "error_cb": self._on_error,
                "log_level": 2,
                **(security or {}),
            }
        )

    def send_until(self, stopping: threading.Event) -> None:
        """Sends as fast as the queue takes it; then waits until everything is acknowledged."""
        partition = 0
        while not stopping.is_set():
            value = _VALUE.pack(self._number, self.sent[partition]) + b"x" * 80
            try:
                self._client.produce(
                    TOPIC, value, partition=partition, on_delivery=self._on_delivery
                )
            except BufferError:
                self._client.poll(0.01)
                continue
            self.sent[partition] += 1
            partition = (partition + 1) % PARTITIONS
            self._client.poll(0)
        left = self._client.flush(120)
        if left:
            self.failures.append(f"{left} records were never acknowledged")

    def _on_delivery(self, error: KafkaError | None, message) -> None:
        if error is not None:
            self.failures.append(f"delivery failed: {error}")
        else:
            self.acknowledged[message.partition()] += 1

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error} {self._client.fatal_error()}")


def kill_and_restart(
    broker: Echoless,
    proxy: LossyProxy,
    producers: list[NumberedProducer],
    dice: random.Random,
    times: int,
) -> None:
    """Lets some more records be acknowledged, kills the broker at once, and starts it again."""
    for _ in range(times):
        goal = acknowledged(producers) + dice.randint(1, RECORDS_BETWEEN_KILLS_MAX)
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while acknowledged(producers) < goal:
            assert time.monotonic() < deadline, "no progress after a restart"
            time.sleep(0.001)  # the producers' threads need the interpreter
        broker.kill()
        broker.start()
        proxy.target = broker.kafka_address


def acknowledged(producers: list[NumberedProducer]) -> int:
    return sum(sum(one.acknowledged) for one in producers)


@pytest.mark.parametrize(
    ("log_flush", "kills", "seed", "is_secured"),
    [("os", 25, 1, False), ("commit", 10, 2, False), ("os", 6, 3, True)],
    ids=["os", "commit", "secured"],
)
def test_nothing_lost_nothing_twice_in_order(
    tmp_path: Path, log_flush: str, kills: int, seed: int, *, is_secured: bool
) -> None:
    """Every acknowledged record is stored once, in order, and librdkafka is never fatal.

    Also by TLS, with log-ins and ACLs.
    """
    settings = {"log_segment_bytes": "1000000", "num_partitions": str(PARTITIONS)}
    chunks_max = CHUNKS_MAX_SECURED if is_secured else FAULT_AFTER_CHUNKS_MAX
    with LossyProxy(seed, fault_after_chunks_max=chunks_max) as proxy:
        arguments = ["--advertise", proxy.address]
        security: Mapping[str, str] = {}
        chosen = {**settings, "log_flush": log_flush}
        if is_secured:
            closed = ClusterSecurity(tmp_path / "security")
            security, chosen = closed.client, {**chosen, **closed.settings}
            closed.add_users("--data-dir", str(tmp_path / "echoless-data"))
        broker = Echoless(tmp_path, chosen, arguments=arguments)
        broker.start()
        proxy.target = broker.kafka_address
        producers = [NumberedProducer(number, proxy.address, security) for number in range(2)]
        stopping = threading.Event()
        threads = [threading.Thread(target=one.send_until, args=[stopping]) for one in producers]
        for thread in threads:
            thread.start()
        kill_and_restart(broker, proxy, producers, random.Random(seed), kills)
        proxy.is_lossy = False
        stopping.set()
        for thread in threads:
            thread.join(180)
        assert [failure for one in producers for failure in one.failures] == []
        broker.kill()
    plain = Echoless(tmp_path, settings)
    plain.start()
    stored = read_stored_values(plain.kafka_address, TOPIC, PARTITIONS)
    plain.kill()
    print(
        f"\n{kills} kills, {proxy.swallowed} answers swallowed, {proxy.cut} connections cut, "
        f"{acknowledged(producers)} records acknowledged"
    )
    assert proxy.swallowed + proxy.cut > kills, "the proxy lost too little to prove anything"
    for partition, values in enumerate(stored):
        assert_numbered(values, partition, producers)


def assert_numbered(values: list[bytes], partition: int, producers: list[NumberedProducer]) -> None:
    """Each producer's records are in the partition as 0, 1, 2, ... with none missing or twice."""
    numbers: list[list[int]] = [[] for _ in producers]
    for value in values:
        producer, number = _VALUE.unpack_from(value)
        numbers[producer].append(number)
    for producer, found in zip(producers, numbers, strict=True):
        assert found == list(range(producer.acknowledged[partition])), (
            f"partition {partition}: sent {producer.sent[partition]}, "
            f"acknowledged {producer.acknowledged[partition]}, stored {len(found)}, "
            f"distinct {len(set(found))}"
        )
