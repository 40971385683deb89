"""A broker that gets no more threads: it continues with those it has."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest

from echoless.protocol.record_batch import Codec
from tests.cli.command import Command
from tests.hostile.bombs import tiny_records
from tests.hostile.target import admin, assert_quiet_log
from tests.support.echoless import Echoless
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import (
    RawConnection,
    create_topic,
    describe_producers_request,
    list_offset,
)
from tests.support.raw_produce import PartitionData
from tests.support.server_process import ServerStartError

pytestmark = pytest.mark.slow

MODULE = "tests.hostile.threadless_broker"
PARTITIONS = 20
"""More than the flushes that one thread does alone."""


@pytest.mark.parametrize("log_flush", ["os", "commit"])
def test_no_lack_of_threads_ends_the_broker(
    tmp_path: Path, log_flush: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that is done in threads still is: first uses, flushes, large batches, changes of topics."""
    broker = Echoless(tmp_path, {"log_flush": log_flush}, module=MODULE)
    broker.start()
    asyncio.run(use(broker))
    assert admin(broker, "/health")[0] == 200
    assert broker.terminate() == 0
    assert_quiet_log(broker)
    assert Command(capsys)("verify", broker.data_dir).code == 0


async def use(broker: Echoless) -> None:
    """Makes requests that need a thread; each is answered as ever."""
    connection = await RawConnection.open(broker.kafka_address)
    await create_topic(connection, "good", PARTITIONS)
    rows = [
        PartitionData("good", index, plain_batch([b"x"]).encode()) for index in range(PARTITIONS)
    ]
    rows.append(PartitionData("good", PARTITIONS - 1, tiny_records(100_000, Codec.ZSTD)))
    for some in (rows[:-1], rows[-1:]):
        answers = await connection.produce(7, -1, some)
        assert {answer.error for answer in answers} == {0}
    assert await list_offset(connection, "good", PARTITIONS - 1, timestamp=0) == 0
    connection.send_request(describe_producers_request("good", range(PARTITIONS)))
    await connection.receive_response("describe_producers", 0)
    await create_topic(connection, "gone", PARTITIONS)
    response = await connection.call(
        "delete_topics", 4, topic_names=("gone",), timeout=datetime.timedelta(seconds=20)
    )
    assert response.responses[0].error_code == 0
    await connection.close()
    native = await NativeConnection.open(broker.native_address)
    assert (await native.call("init_producer_id"))["error"]["code"] == 0
    await native.close()


def test_a_start_that_gets_no_threads_says_so(tmp_path: Path) -> None:
    """One line, with the remedy."""
    broker = Echoless(tmp_path, module=MODULE)
    broker.process.prefix = ("env", "NO_THREADS_FROM_START=1")
    with pytest.raises(ServerStartError):
        broker.start()
    log = broker.process.log()
    assert "ulimit -u" in log
    assert "Traceback" not in log
