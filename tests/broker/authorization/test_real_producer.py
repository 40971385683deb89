"""librdkafka under ACLs: Write on a topic is all that an idempotent producer needs, and it names what is denied."""

from __future__ import annotations

import asyncio

import confluent_kafka
from confluent_kafka import KafkaError

from echoless.protocol.acl import AclOperation
from tests.support.acls import AclEditor
from tests.support.in_process import Running


def produce(address: str, topic: str) -> list[int | None]:
    """The error of each of three records, None for those that are stored."""
    outcomes: list[int | None] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "log_level": 0,
        }
    )

    def delivered(error: KafkaError | None, _message: object) -> None:
        outcomes.append(None if error is None else error.code())

    for number in range(3):
        producer.produce(topic, str(number).encode(), on_delivery=delivered)
    producer.flush(30)
    return outcomes


async def test_an_idempotent_producer_needs_write_on_its_topic_alone(
    running: Running, acls: AclEditor
) -> None:
    """Its records are stored; for another topic it is told that it is not authorised."""
    await acls.allow(AclOperation.WRITE, "t")
    address = running.kafka_address
    assert await asyncio.to_thread(produce, address, "t") == [None] * 3
    assert running.broker.partitions["t", 0].log.log_end_offset == 3
    denied = await asyncio.to_thread(produce, address, "u")
    assert denied == [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 3
    assert running.broker.partitions["u", 0].log.log_end_offset == 0
