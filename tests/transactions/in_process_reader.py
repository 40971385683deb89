"""A reader of committed records for a broker in this process."""

from __future__ import annotations

from tests.broker.until import until
from tests.support.in_process import Running


async def until_stable(running: Running, topic: str, partition: int) -> int:
    """The end of a partition, once nothing is open there."""
    found = running.broker.partitions[topic, partition]
    await until(lambda: found.last_stable_offset == found.log.log_end_offset)
    return found.log.log_end_offset


async def committed(running: Running, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that a reader of committed records sees, once nothing is open."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    end = await until_stable(running, topic, partition)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=running.kafka_address,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    place = TopicPartition(topic, partition)
    consumer.assign([place])
    await consumer.seek_to_beginning(place)
    values: list[bytes | None] = []
    while await consumer.position(place) < end:
        rows = await consumer.getmany(timeout_ms=100)
        values += [row.value for some in rows.values() for row in some]
    await consumer.stop()
    return values
