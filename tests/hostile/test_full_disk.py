"""A disk that fills up under a real producer, and has room again after a restart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

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


RECORDS = 2 * PARTITIONS
"""Records of a transaction, so that each has some in every partition."""


class Transactions:
    """A producer that commits one transaction after the other, and goes on as librdkafka's errors say."""

    def __init__(self, bootstrap: str) -> None:
        self._client = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "t",
                "transaction.timeout.ms": 300_000,  # it must not end while the broker is away
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._client.init_transactions(60)
        self.committed: set[int] = set()
        self.aborted: set[int] = set()

    def run(self, stopping: threading.Event) -> None:
        """Runs until it is told to stop; the last transaction has ended then."""
        number = 0
        while not stopping.is_set():
            self._client.begin_transaction()
            try:
                for record in range(RECORDS):
                    value = b"%d %d " % (number, record) + bytes(8_000)
                    self._client.produce(TOPIC, value, partition=record % PARTITIONS)
                self._end(self._client.commit_transaction)
                self.committed.add(number)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._end(self._client.abort_transaction)
                self.aborted.add(number)
            number += 1

    @staticmethod
    def _end(end: Callable[[float], None]) -> None:
        """Again and again, as long as its outcome is not known."""
        while True:
            try:
                end(10)
            except KafkaException as error:
                if error.args[0].retriable():
                    continue
                raise
            return


@pytest.mark.parametrize("log_flush", ["os", "commit"])
def test_transactions_end_once_there_is_room_again(tmp_path: Path, log_flush: str):
    """Readers of committed records see what was committed, whole and once, and in the end nothing holds them back."""
    with mounted_tmpfs(tmp_path / "disk", DISK) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(BALLAST_BYTES))
        broker = start(disk, log_flush)
        producer, stopping = Transactions(broker.kafka_address), threading.Event()
        thread = threading.Thread(target=producer.run, args=[stopping])
        thread.start()
        until(lambda: "is offline" in broker.process.log(), "the disk is full")
        before = len(producer.committed)
        assert before > 0
        assert broker.terminate() == 0
        ballast.unlink()
        broker.start()
        until(lambda: len(producer.committed) > before, "a transaction is committed again")
        stopping.set()
        thread.join(120)
        assert not thread.is_alive()
        until(lambda: have_ended(broker), "every transaction has ended")
        seen: dict[int, list[int]] = {}
        for number, record in committed_records(broker):
            seen.setdefault(number, []).append(record)
        assert set(seen) == producer.committed
        assert all(sorted(records) == list(range(RECORDS)) for records in seen.values())
        assert broker.terminate() == 0
        assert_quiet_log(broker)


def have_ended(broker: Echoless) -> bool:
    """Whether nothing holds readers of committed records back."""
    (topic,) = [one for one in admin(broker, "/topics")[1]["topics"] if one["name"] == TOPIC]
    return all(one["last_stable_offset"] == one["log_end_offset"] for one in topic["partitions"])


def committed_records(broker: Echoless) -> Iterator[tuple[int, int]]:
    """Yields number and record of all that readers of committed records see, up to the ends of the logs."""
    reader = Consumer(
        {
            "bootstrap.servers": broker.kafka_address,
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        message = reader.poll(60)
        assert message is not None, "the end of a partition is not reached"
        if message.error() is not None:
            ended += 1
            continue
        number, record, _ = (message.value() or b"").split(b" ", 2)
        yield int(number), int(record)
    reader.close()


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
