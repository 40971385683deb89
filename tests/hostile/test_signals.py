"""Signals at inconvenient times: the exit code, the time it takes, and what is there afterwards."""

from __future__ import annotations

import asyncio
import datetime
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.crash.test_kill_under_load import (
    PARTITIONS,
    TOPIC,
    NumberedProducer,
    acknowledged,
    assert_numbered,
)
from tests.hostile.target import API_VERSIONS, assert_quiet_log, connect, until
from tests.support.echoless import Echoless
from tests.support.queued_time import ProcessWatch
from tests.support.raw_client import RawConnection, message, nested
from tests.support.stored_values import read_stored_values

pytestmark = pytest.mark.slow

STOP_S_MAX = 5.0
"""The time that is promised, less what the machine takes for others: `ProcessWatch.net_s`."""
SETTINGS = {"num_partitions": str(PARTITIONS), "log_segment_bytes": "1000000"}


class Load:
    """A producer at full speed in a separate thread."""

    def __init__(self, broker: Echoless) -> None:
        self._broker = broker
        self._producer = NumberedProducer(0, broker.kafka_address)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._producer.send_until, args=[self._stopping])
        self._thread.start()

    def wait_for(self, records: int) -> None:
        goal = acknowledged([self._producer]) + records
        until(lambda: acknowledged([self._producer]) >= goal, f"{records} more records")

    def finish(self) -> None:
        """Every record is acknowledged, and stored once, in order."""
        self._stopping.set()
        self._thread.join(120)
        assert self._producer.failures == []
        stored = read_stored_values(self._broker.kafka_address, TOPIC, PARTITIONS)
        for partition, values in enumerate(stored):
            assert_numbered(values, partition, [self._producer])


def long_poll(topic: str) -> object:
    """A fetch that would wait for half a minute."""
    row = nested("fetch", 11, "FetchPartition")(
        partition=0, fetch_offset=0, partition_max_bytes=1000
    )
    return message("fetch", 11, "Request")(
        max_wait=datetime.timedelta(seconds=30),
        min_bytes=2**31 - 1,
        topics=(nested("fetch", 11, "FetchTopic")(topic=topic, partitions=(row,)),),
        forgotten_topics_data=(),
    )


async def test_a_stop_under_load_is_quick_and_clean(start_echoless):
    """Exit 0 within seconds, whatever clients are connected; the marker is there, and nothing is lost."""
    broker: Echoless = start_echoless(SETTINGS)
    load = Load(broker)
    load.wait_for(2000)
    fetching = [await RawConnection.open(broker.kafka_address) for _ in range(20)]
    for connection in fetching:
        connection.send_request(long_poll(TOPIC))
    idle = [connect(broker.kafka_address) for _ in range(200)]
    idle[-1].sendall(API_VERSIONS)
    assert idle[-1].recv(4)
    with ProcessWatch(broker.process.pid) as watch:
        assert broker.terminate() == 0
    assert watch.net_s < STOP_S_MAX
    assert (broker.data_dir / ".clean-shutdown").exists()
    for one in idle:
        one.close()
    for connection in fetching:
        assert await connection.receive()  # an answer, not a closed socket
        await connection.close()
    broker.start()
    load.wait_for(1)
    await asyncio.to_thread(load.finish)
    assert_quiet_log(broker)


async def test_waiting_fetches_do_not_delay_a_stop(start_echoless):
    """They are answered with what there is; the stop gives up long before their time is over."""
    broker: Echoless = start_echoless({"auto_create_topics_enable": "true"})
    connection = await RawConnection.open(broker.kafka_address)
    topic = nested("metadata", 4, "MetadataRequestTopic")(name="empty")
    await connection.call("metadata", 4, topics=(topic,), allow_auto_topic_creation=True)
    connection.send_request(long_poll("empty"))
    await connection._writer.drain()
    other = await RawConnection.open(broker.kafka_address)
    await other.call("metadata", 4, topics=(), allow_auto_topic_creation=False)
    assert broker.terminate() == 0
    assert await connection.receive(), "a stop that waited for it in vain would have cut it off"
    await connection.close()
    await other.close()


def spawn(broker: Echoless) -> subprocess.Popen[bytes]:
    """Starts the broker without waiting."""
    log = broker.process.log_path.open("ab")
    root = Path(__file__).parents[2]
    with log:
        return subprocess.Popen(broker._command(), stdout=log, stderr=log, cwd=root)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_broker_starts(start_echoless, number: signal.Signals):
    """It ends in order as soon as it can, and the next start finds nothing amiss."""
    broker: Echoless = start_echoless()
    assert broker.terminate() == 0
    marker = broker.data_dir / ".clean-shutdown"
    assert marker.exists()
    process = spawn(broker)
    until(lambda: not marker.exists(), "the start has begun")
    process.send_signal(number)
    assert process.wait(30) == 0
    assert marker.exists()
    broker.start()
    assert_quiet_log(broker)


@pytest.mark.crash
def test_a_recovery_that_is_killed_is_done_again(start_echoless):
    """However often a start is killed, the next one finds every acknowledged record."""
    broker: Echoless = start_echoless(SETTINGS)
    load = Load(broker)
    load.wait_for(20_000)
    broker.kill()
    dice = random.Random(3)
    for _ in range(15):
        process = spawn(broker)
        time.sleep(dice.uniform(0.1, 0.6))  # anywhere in the start, or just after it
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
    broker.start()
    load.wait_for(1)
    load.finish()
    assert_quiet_log(broker)
