"""A broker that runs out of file descriptors: it refuses what is new, and recovers by itself."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.crash.test_kill_under_load import (
    PARTITIONS,
    TOPIC,
    NumberedProducer,
    acknowledged,
    assert_numbered,
)
from tests.hostile.target import admin, assert_quiet_log, connect, is_answering, until
from tests.support.echoless import Echoless
from tests.support.raw_client import ConnectionEndedError, RawConnection, create_topic, nested
from tests.support.stored_values import read_stored_values

pytestmark = pytest.mark.slow

LIMIT = 160
NONE, POLICY_VIOLATION = 0, 44


class Limited(Echoless):
    """A broker that may have `LIMIT` descriptors."""

    def _command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *super()._command()]


async def created(address: str, name: str, partitions: int) -> tuple[int, str]:
    """Error code and message of creating a topic."""
    connection = await RawConnection.open(address)
    topic = nested("create_topics", 5, "CreatableTopic")(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    response = await connection.call("create_topics", 5, topics=(topic,))
    await connection.close()
    (row,) = response.topics
    return row.error_code, row.error_message or ""


async def create_tiny(address: str) -> None:
    connection = await RawConnection.open(address)
    await create_topic(connection, TOPIC, PARTITIONS, {"segment.bytes": "10000"})
    await connection.close()


def test_no_lack_of_descriptors_is_taken_for_a_failed_disk(tmp_path: Path):
    """Hostile connections on all ports and a segment for every few batches: each record once."""
    broker = Limited(tmp_path)
    broker.start()
    admin(broker, "/health")
    asyncio.run(create_tiny(broker.kafka_address))
    producer = NumberedProducer(0, broker.kafka_address)
    stopping = threading.Event()
    thread = threading.Thread(target=producer.send_until, args=[stopping], daemon=True)
    thread.start()
    until(lambda: acknowledged([producer]) > 0, "the producer sends")
    ports = [broker.kafka_address, broker.native_address, broker.admin_address]
    hostile = [connect(port) for port in ports for _ in range(LIMIT)]
    log_files = tmp_path / "echoless-data" / f"{TOPIC}-0"
    before = acknowledged([producer])
    until(lambda: acknowledged([producer]) > before + 2000, "the producer goes on")
    assert len(list(log_files.glob("*.log"))) > 1
    code, message = asyncio.run(try_to_create(broker.kafka_address, hostile))
    assert code == POLICY_VIOLATION
    assert "ulimit -n" in message
    stopping.set()
    thread.join(120)
    for connection in hostile:
        connection.close()
    until(lambda: is_answering(broker.kafka_address), "connections are taken again")
    assert admin(broker, "/health")[0] == 200
    assert producer.failures == []
    assert sum(producer.acknowledged) == sum(producer.sent)
    for partition, values in enumerate(read_stored_values(broker.kafka_address, TOPIC, PARTITIONS)):
        assert_numbered(values, partition, [producer])
    assert "is offline" not in broker.process.log()
    assert broker.terminate() == 0
    assert_quiet_log(broker)


async def try_to_create(address: str, hostile: list) -> tuple[int, str]:
    """Creates a large topic as soon as there is a connection for it."""
    for connection in hostile[:10]:
        connection.close()
    async with asyncio.timeout(20):
        while True:
            try:
                return await created(address, "large", LIMIT)
            except (OSError, ConnectionEndedError):
                await asyncio.sleep(0.01)
