"""One story told by clients of three families: commit, abort, a second instance that fences the first, and their readers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from tests.compatibility.programs import BUILT
from tests.support.echoless import Echoless
from tests.toolchain import require
from tests.transactions.librdkafka import (
    PARTITIONS,
    TOPIC,
    WITHIN_S,
    create_topic,
    read,
    read_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

FIRST, SECOND, FENCED, THIRD = (
    [f"{name}-{number}" for number in range(9)] for name in ("first", "second", "fenced", "third")
)
COMMITTED = sorted(FIRST + THIRD)
EVERYTHING = sorted(FIRST + SECOND + FENCED + THIRD)
GROUP = "copier"
OFFSET = 5
Outcome = dict[str, Any]
"""The name of the fenced instance's `error`, and what a reader of each isolation found."""


def has_the_last(found: Iterable[str]) -> bool:
    """Whether a reader has everything of the last transaction, which ends every partition."""
    return set(THIRD) <= set(found)


async def aiokafka_story(bootstrap: str) -> Outcome:
    """aiokafka."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def instance() -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aiokafka")
        await producer.start()
        return producer

    async def begin(producer: Any, values: list[str]) -> None:
        await producer.begin_transaction()
        for number, value in enumerate(values):
            await producer.send_and_wait(TOPIC, value.encode(), partition=number % PARTITIONS)

    async def found(isolation: str) -> list[str]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
        await consumer.start()
        consumer.assign([TopicPartition(TOPIC, one) for one in range(PARTITIONS)])
        await consumer.seek_to_beginning()
        values: list[str] = []
        while not has_the_last(values):
            values.append((await consumer.getone()).value.decode())
        await consumer.stop()
        return sorted(values)

    old = await instance()
    await begin(old, FIRST)
    await old.send_offsets_to_transaction({TopicPartition(TOPIC, 0): OFFSET}, GROUP)
    await old.commit_transaction()
    await begin(old, SECOND)
    await old.send_offsets_to_transaction({TopicPartition(TOPIC, 0): OFFSET + 1}, GROUP)
    await old.abort_transaction()
    await begin(old, FENCED)
    young = await instance()
    await begin(young, THIRD)
    with pytest.raises(Exception) as fenced:  # noqa: PT011 - its name is compared
        await old.commit_transaction()
    await young.commit_transaction()
    await young.stop()
    await old.stop()
    return {
        "error": type(fenced.value).__name__,
        "committed": await found("read_committed"),
        "uncommitted": await found("read_uncommitted"),
    }


async def kafka_python_story(bootstrap: str) -> Outcome:
    """kafka-python."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    def instance() -> Any:
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="kafka-python")
        producer.init_transactions()
        return producer

    def begin(producer: Any, values: list[str]) -> None:
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.send(TOPIC, value.encode(), partition=number % PARTITIONS)
        producer.flush()

    def found(isolation: str) -> list[str]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
        )
        consumer.assign([TopicPartition(TOPIC, one) for one in range(PARTITIONS)])
        values: list[str] = []
        while not has_the_last(values):
            values.append(next(consumer).value.decode())
        consumer.close()
        return sorted(values)

    def position(offset: int) -> Any:
        return {TopicPartition(TOPIC, 0): OffsetAndMetadata(offset, "", -1)}

    old = instance()
    begin(old, FIRST)
    old.send_offsets_to_transaction(position(OFFSET), GROUP)
    old.commit_transaction()
    begin(old, SECOND)
    old.send_offsets_to_transaction(position(OFFSET + 1), GROUP)
    old.abort_transaction()
    begin(old, FENCED)
    young = instance()
    begin(young, THIRD)
    with pytest.raises(Exception) as fenced:  # noqa: PT011 - its name is compared
        old.commit_transaction()
    young.commit_transaction()
    young.close(timeout=5)
    old.close(timeout=1)
    return {
        "error": type(fenced.value).__name__,
        "committed": found("read_committed"),
        "uncommitted": found("read_uncommitted"),
    }


async def kafkajs_story(bootstrap: str) -> Outcome:
    """kafkajs, which dies of what other clients retry."""
    require("node", "node-client")
    values = {
        "first": FIRST,
        "second": SECOND,
        "fenced": FENCED,
        "third": THIRD,
        "partitions": PARTITIONS,
        "group": GROUP,
        "offset": OFFSET,
    }
    program = str(Path(__file__).with_name("kafkajs_story.js"))
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        ["node", program, bootstrap, TOPIC, json.dumps(values)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={
            **os.environ,
            "NODE_PATH": str(BUILT / "node" / "node_modules"),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    outcome: Outcome = json.loads(done.stdout)
    return outcome


@pytest.mark.parametrize(
    ("story", "error"),
    [
        pytest.param(aiokafka_story, "ProducerFenced", id="aiokafka"),
        pytest.param(kafka_python_story, "ProducerFencedError", id="kafka-python"),
        pytest.param(
            kafkajs_story, "INVALID_PRODUCER_EPOCH", id="kafkajs", marks=pytest.mark.clients
        ),
    ],
)
async def test_a_family_of_clients(
    start_echoless: Callable[..., Echoless],
    story: Callable[[str], Awaitable[Outcome]],
    error: str,
) -> None:
    """The readers of the family and those of librdkafka find the same, and offsets come with their transaction."""
    bootstrap = start_echoless().kafka_address
    create_topic(bootstrap)
    outcome = await story(bootstrap)
    assert outcome == {"error": error, "committed": COMMITTED, "uncommitted": EVERYTHING}
    read_until(bootstrap, COMMITTED)
    assert read(bootstrap, committed=False) == EVERYTHING
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    (found,) = consumer.committed([Position(TOPIC, 0)], timeout=WITHIN_S)
    consumer.close()
    assert found.offset == OFFSET
