"""Readers of committed records, one of each family, on one topic with commits, aborts, markers and what compaction has left."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.programs import BUILT, JAVA_VERSIONS
from tests.pipeline.reading.written import read as read_topic
from tests.support.echoless import SOURCES, Echoless
from tests.toolchain import require
from tests.transactions.families.writers import NODE, franz_go_command, kafkajs_command
from tests.transactions.librdkafka import transactional

pytestmark = [
    pytest.mark.slow,
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_TOPIC = "mixed"
_PARTITIONS = 2
_END = "end"
"""The last committed value of each partition; behind it are an aborted transaction and an open one."""
_KEYS = 5
_ROUNDS = 24
_WITHIN_S = 180.0
_ASK_AGAIN_S = 0.05
Rows = list[tuple[int, int, str]]
"""Partition, offset and value of each record."""
JAVA = Path(__file__).parent / "java" / "Read.java"


def write(bootstrap: str, *, is_committed: bool, values: list[str]) -> Producer:
    """Writes each value to every partition under one of a few keys, in one transaction."""
    producer = transactional(bootstrap, timeout_ms=600_000)
    producer.begin_transaction()
    for number, value in enumerate(values):
        for partition in range(_PARTITIONS):
            producer.produce(_TOPIC, value, key=f"key-{number % _KEYS}", partition=partition)
    assert producer.flush(_WITHIN_S) == 0
    if is_committed:
        producer.commit_transaction(_WITHIN_S)
    else:
        producer.abort_transaction(_WITHIN_S)
    return producer


@pytest.fixture
def bootstrap(start_echoless: Callable[..., Echoless]) -> str:
    """A broker whose topic has been compacted, and ends in an aborted transaction and an open one."""
    broker = start_echoless({"log_cleaner_backoff_ms": "100"})
    address = broker.kafka_address
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "4000",
    }
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    made = admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1, config=config)])
    made[_TOPIC].result(_WITHIN_S)
    for number in range(_ROUNDS):
        word = "aborted" if number % 3 == 1 else "committed"
        values = [f"{word}-{number}-{one}" for one in range(2 * _KEYS)]
        write(address, is_committed=word == "committed", values=values)
    write(address, is_committed=True, values=[_END])
    write(address, is_committed=False, values=["aborted-at-the-end"])
    holder = transactional(address, "open", timeout_ms=600_000)
    holder.begin_transaction()
    for partition in range(_PARTITIONS):
        holder.produce(_TOPIC, "open", key="open", partition=partition)
    assert holder.flush(_WITHIN_S) == 0
    until = time.monotonic() + _WITHIN_S
    while len(_cleaned(broker)) < _PARTITIONS:
        assert time.monotonic() < until, _cleaned(broker)
        time.sleep(_ASK_AGAIN_S)
    assert broker.terminate() == 0
    broker.run_from(SOURCES, {"log_cleaner_backoff_ms": "86400000"})  # nothing changes any more
    broker.start()
    return address


def _cleaned(broker: Echoless) -> list[str]:
    """The lines of the cleaner's checkpoint about the topic: partition, and the offset up to which it has cleaned."""
    checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return [line for line in lines if line.startswith(f"{_TOPIC} ")]


def librdkafka(bootstrap: str) -> Rows:
    """Reads with librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "librdkafka",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(_TOPIC, one, 0) for one in range(_PARTITIONS)])
    found: Rows = []
    while sum(value == _END for _, _, value in found) < _PARTITIONS:
        message = consumer.poll(_WITHIN_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append((message.partition(), message.offset(), message.value().decode()))
    consumer.close()
    return found


async def aiokafka(bootstrap: str) -> Rows:
    """Reads with aiokafka."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Place

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    consumer.assign([Place(_TOPIC, one) for one in range(_PARTITIONS)])
    await consumer.seek_to_beginning()
    found: Rows = []
    while sum(value == _END for _, _, value in found) < _PARTITIONS:
        record = await asyncio.wait_for(consumer.getone(), _WITHIN_S)
        found.append((record.partition, record.offset, record.value.decode()))
    await consumer.stop()
    return found


def kafka_python(bootstrap: str) -> Rows:
    """Reads with kafka-python."""
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Place

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=_WITHIN_S * 1000,
    )
    consumer.assign([Place(_TOPIC, one) for one in range(_PARTITIONS)])
    found: Rows = []
    for record in consumer:
        found.append((record.partition, record.offset, record.value.decode()))
        if sum(value == _END for _, _, value in found) == _PARTITIONS:
            break
    consumer.close()
    return found


def spark_reader(bootstrap: str) -> Rows:
    """Reads as a task of the Spark reader does."""
    rows = read_topic(bootstrap, subscribe=_TOPIC, kafka__isolation__level="read_committed")
    return [(row["partition"], row["offset"], row["value"].decode()) for row in rows]


def program(*command: str) -> Rows:
    """Reads with a program that prints its rows as JSON."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_WITHIN_S, check=True, env=NODE
    )
    return [(row[0], row[1], row[2]) for row in json.loads(done.stdout)]


async def test_every_family_reads_the_same(bootstrap: str, tmp_path: Path) -> None:
    """Nothing that was aborted or is open, the newest committed value of each key, and the same offsets."""
    require("java", *(f"java-client-{version}" for version in JAVA_VERSIONS))
    where = (bootstrap, _TOPIC, str(_PARTITIONS))
    found = {
        "librdkafka": librdkafka(bootstrap),
        "aiokafka": await aiokafka(bootstrap),
        "kafka-python": kafka_python(bootstrap),
        "spark-reader": spark_reader(bootstrap),
        "kafkajs": program(*kafkajs_command(), "read", *where),
        "franz-go": program(*franz_go_command(tmp_path), "read", *where),
        **{
            f"java-{version}": program(
                "java", "-cp", f"{BUILT}/java-{version}/*", str(JAVA), *where
            )
            for version in JAVA_VERSIONS
        },
    }
    wanted = sorted(found["librdkafka"])
    for name, rows in found.items():
        assert sorted(rows) == wanted, name
    values = [value for _, _, value in wanted]
    assert all(value == _END or value.startswith("committed-") for value in values), values
    newest = {f"committed-{_ROUNDS - 1}-{number}" for number in range(_KEYS, 2 * _KEYS)}
    assert newest - {f"committed-{_ROUNDS - 1}-{_KEYS}"} <= set(values)  # the last has END's key
    written = _PARTITIONS * sum(2 * _KEYS for number in range(_ROUNDS) if number % 3 != 1)
    assert len(values) < written, "compaction has left everything"
