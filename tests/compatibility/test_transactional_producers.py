"""Transactional producers of every family: what one commits is read, what one aborts is not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compatibility.programs import FRANZ_GO, JAVA, KAFKAJS, Program
from tests.support.echoless import Echoless

_PATIENCE_S = 120
_COUNT = 20


def read(bootstrap: str, topic: str, level: str) -> list[bytes]:
    """The values that a reader of this isolation level sees of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while True:
        one = consumer.poll(_PATIENCE_S)
        assert one is not None, f"{len(found)} records, and no end"
        if one.error() is not None:
            break
        found.append(one.value() or b"")
    consumer.close()
    return found


def librdkafka(bootstrap: str, topic: str, value: bytes, *, is_commit: bool) -> None:
    """One transaction."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    if is_commit:
        producer.commit_transaction(_PATIENCE_S)
    else:
        producer.flush(_PATIENCE_S)
        producer.abort_transaction(_PATIENCE_S)


def kafka_python(bootstrap: str, topic: str, value: bytes, *, is_commit: bool) -> None:
    """One transaction."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, value, partition=0).get(_PATIENCE_S)
    if is_commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    producer.close()


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # kafka-python's own use of importlib.resources
@pytest.mark.parametrize("transact", [librdkafka, kafka_python])
def test_what_is_committed_is_read(echoless: Echoless, transact: Callable[..., None]) -> None:
    """In one process after the other, under one transactional id."""
    topic, bootstrap = f"of-{transact.__name__}", echoless.kafka_address
    for number in range(4):
        transact(bootstrap, topic, b"%d" % number, is_commit=number % 2 == 0)
    assert read(bootstrap, topic, "read_committed") == [b"0", b"2"]
    assert read(bootstrap, topic, "read_uncommitted") == [b"0", b"1", b"2", b"3"]


@pytest.mark.slow
async def test_aiokafka_commits_and_aborts(echoless: Echoless) -> None:
    """The same with its own context manager."""
    from aiokafka import AIOKafkaProducer

    bootstrap = echoless.kafka_address
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="a") as producer:
        for number in range(4):
            try:
                async with producer.transaction():
                    await producer.send_and_wait("of-aiokafka", b"%d" % number, partition=0)
                    if number % 2:
                        raise KeyError(number)  # noqa: TRY301 - aborts
            except KeyError:
                pass
    assert read(bootstrap, "of-aiokafka", "read_committed") == [b"0", b"2"]
    assert read(bootstrap, "of-aiokafka", "read_uncommitted") == [b"0", b"1", b"2", b"3"]


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.parametrize("client", [*JAVA, FRANZ_GO, KAFKAJS], ids=lambda one: one.name)
def test_other_clients_commit_and_abort(echoless: Echoless, client: Program) -> None:
    """Java of both generations of the protocol, Go and JavaScript, each a process for each transaction."""
    topic = f"of-{client.name}"
    for end in ("commit", "abort", "commit"):
        process = client.start(
            "produce",
            bootstrap=echoless.kafka_address,
            topic=topic,
            partitions=1,
            codec="none",
            count=_COUNT,
            seed=1,
            base_timestamp=int(
                time.time() * 1000
            ),  # older ones go by retention before they are read
            transactional_id=topic,
            end=end,
        )
        try:
            output, said = process.communicate(timeout=_PATIENCE_S)
        finally:
            process.kill()
        assert process.returncode == 0, said
        assert json.loads(output.splitlines()[-1])["acked"] == _COUNT, said
    assert len(read(echoless.kafka_address, topic, "read_committed")) == 2 * _COUNT
    assert len(read(echoless.kafka_address, topic, "read_uncommitted")) == 3 * _COUNT
