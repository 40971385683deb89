"""Consumers that have a group id and still assign their partitions themselves.

Such a consumer still looks for its coordinator, perhaps fetches its committed offset, and commits when it
closes, as the only user of a group without members.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.compatibility.conftest import PARTITIONS
from tests.compatibility.programs import LIBRDKAFKA
from tests.support.echoless import Echoless

_TOPIC = "assigned"
_RECORDS = 30
_CLOSE_S_MAX = 5.0
_READ_S_MAX = 20.0

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def written(broker: Echoless) -> str:
    """The address of a broker whose topic holds some recent records."""
    LIBRDKAFKA.run(
        "produce",
        bootstrap=broker.kafka_address,
        topic=_TOPIC,
        partitions=PARTITIONS,
        count=_RECORDS,
        seed=1,
        base_timestamp=int(time.time() * 1000),
    )
    return broker.kafka_address


def _read(poll: Callable[[], int]) -> int:
    deadline, found = time.monotonic() + _READ_S_MAX, 0
    while found < _RECORDS and time.monotonic() < deadline:
        found += poll()
    return found


def _seconds(close: Callable[[], Any]) -> float:
    began = time.monotonic()
    close()
    return time.monotonic() - began


@pytest.mark.parametrize("from_offset", [0, None], ids=["from-0", "from-nowhere"])
def test_librdkafka_reads_and_closes(written: str, from_offset: int | None) -> None:
    """Automatic commits are on, as by default: no error event, and no wait at the end."""
    from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": written,
            "group.id": f"librdkafka from {from_offset}",
            "auto.offset.reset": "earliest",
        }
    )
    offset = OFFSET_INVALID if from_offset is None else from_offset
    consumer.assign([TopicPartition(_TOPIC, p, offset) for p in range(PARTITIONS)])

    def poll() -> int:
        messages = consumer.consume(100, timeout=0.2)
        assert [message.error() for message in messages if message.error()] == []
        return len(messages)

    assert _read(poll) == _RECORDS
    assert _seconds(consumer.close) < _CLOSE_S_MAX


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own use of importlib.resources
def test_kafka_python_reads_and_closes(written: str) -> None:
    """Its reset policy says where to begin, as nothing is committed."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=written, group_id="kafka-python", auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(_TOPIC, p) for p in range(PARTITIONS)])
    assert _read(lambda: sum(map(len, consumer.poll(timeout_ms=200).values()))) == _RECORDS
    assert _seconds(consumer.close) < _CLOSE_S_MAX


def test_a_subscriber_reads_the_same_records(written: str) -> None:
    """It gets all partitions, as the only member of its group."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": written, "group.id": "sub", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([_TOPIC])
    assert _read(lambda: len(consumer.consume(100, timeout=0.2))) == _RECORDS
    assert _seconds(consumer.close) < _CLOSE_S_MAX
