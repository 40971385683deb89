"""A machine whose clock is set under a running broker: a real process with libfaketime in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.target import until
from tests.support.echoless import Echoless
from tests.support.native_client import NativeConnection
from tests.toolchain import require

TOPIC = "orders"
BATCHES = 5
STEPS = ["+25h", "-25h", "+9d", "+0"]


class SetClock:
    """The clock of one process only."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "time"
        self.set("+0")
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        variables = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": self._file,
            "FAKETIME_NO_CACHE": 1,
            "FAKETIME_DONT_FAKE_MONOTONIC": 1,
        }
        self.prefix = ("env", *(f"{name}={value}" for name, value in variables.items()))

    def set(self, offset: str) -> None:
        """`offset` is from the real time, such as `+25h`."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.replace(self._file)


class Producer:
    """Five batches of one producer, each of which can be repeated."""

    def __init__(self, broker: Echoless) -> None:
        self._broker = broker
        self._producer_id = -1

    async def send_all(self) -> list[dict[str, Any]]:
        """The answers to all batches, the first time and ever after."""
        connection = await NativeConnection.open(self._broker.native_address)
        if self._producer_id < 0:
            await connection.call("create_topic", topic=TOPIC)
            self._producer_id = (await connection.call("init_producer_id"))["producer_id"]
        answers = [
            await connection.call(
                "produce",
                topic=TOPIC,
                partition=0,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                records=[{"value": b"%d" % sequence}],
            )
            for sequence in range(BATCHES)
        ]
        await connection.close()
        return answers


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Echoless]:
    """A broker with segments of a few batches, so that retention would have something to delete."""
    broker = Echoless(tmp_path, {"log_segment_bytes": "200", "log_flush": "commit"})
    yield broker
    if broker.process.is_running:
        broker.kill()


@pytest.mark.slow
async def test_a_clock_that_is_set_costs_no_record_and_no_producer(
    broker: Echoless, tmp_path: Path
) -> None:
    """By a day and by nine, back and forth, while it runs and while it does not."""
    require("faketime")
    clock = SetClock(tmp_path)
    broker.process.prefix = clock.prefix
    broker.start()
    producer = Producer(broker)
    first = await producer.send_all()
    assert [answer["base_offset"] for answer in first] == list(range(BATCHES)), first
    repeats = [(True, offset) for offset in range(BATCHES)]
    for count, offset in enumerate(STEPS, 1):
        clock.set(offset)
        until(
            lambda count=count: broker.process.log().count("the wall clock stepped") == count,
            f"step {count} is noticed",
        )
        again = await producer.send_all()
        assert [(one["duplicate"], one["base_offset"]) for one in again] == repeats
    for end, offset in zip(
        itertools.cycle((broker.kill, broker.terminate)), ("+9d", "-9d", "+25h")
    ):
        end()
        clock.set(offset)
        broker.start()
        again = await producer.send_all()
        assert [(one["duplicate"], one["base_offset"]) for one in again] == repeats
    assert broker.process.log().count("unless it was stopped for") == 2
    assert broker.process.log().count("one of the two is wrong") == 1
    assert {answer["log_start_offset"] for answer in again} == {0}
