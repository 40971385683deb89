"""A disk that fills up under a real producer, and has room again after a restart."""

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
from tests.hostile.target import admin, assert_quiet_log, until
from tests.hostile.tmpfs import mounted_tmpfs
from tests.support.echoless import Echoless
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection
from tests.support.raw_produce import PartitionData
from tests.support.stored_values import read_stored_values

pytestmark = [pytest.mark.slow]

DISK = "size=8m"
BALLAST_BYTES = 4 * 1024 * 1024
KAFKA_STORAGE_ERROR = 56


@pytest.mark.parametrize("log_flush", ["os", "commit"])
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path, log_flush: str):
    """The directory goes offline, says so, and after a restart with room everything is there once."""
    with mounted_tmpfs(tmp_path / "disk", DISK) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(BALLAST_BYTES))
        broker = start(disk, log_flush)
        producer = NumberedProducer(0, broker.kafka_address)
        stopping = threading.Event()
        thread = threading.Thread(target=producer.send_until, args=[stopping])
        thread.start()
        until(lambda: "is offline" in broker.process.log(), "the disk is full")
        stopping.set()
        asyncio.run(assert_offline(broker, disk))
        before = acknowledged([producer])
        assert before > 0
        assert broker.terminate() == 0
        ballast.unlink()
        broker.start()
        thread.join(120)
        assert producer.failures == []
        assert sum(producer.acknowledged) == sum(producer.sent) > before
        for partition, values in enumerate(
            read_stored_values(broker.kafka_address, TOPIC, PARTITIONS)
        ):
            assert_numbered(values, partition, [producer])
        assert admin(broker, "/health")[0] == 200
        assert broker.terminate() == 0
        assert_quiet_log(broker)


def start(disk: Path, log_flush: str) -> Echoless:
    settings = {
        "log_flush": log_flush,
        "log_segment_bytes": "500000",
        "num_partitions": str(PARTITIONS),
    }
    broker = Echoless(disk.parent / "broker", settings)
    broker.data_dir = disk / "data"
    broker.start()
    return broker


async def assert_offline(broker: Echoless, disk: Path) -> None:
    """Requests get 56, and /health names the file."""
    status, document = admin(broker, "/health")
    assert status == 503
    assert str(disk) in document["error"]
    assert "No space left on device" in document["error"]
    assert admin(broker, "/ready")[0] == 503
    connection = await RawConnection.open(broker.kafka_address)
    row = PartitionData(TOPIC, 0, plain_batch([b"one more"]).encode())
    for acks in (1, -1):
        (answer,) = await connection.produce(8, acks, [row])
        assert answer.error == KAFKA_STORAGE_ERROR
    await connection.close()
