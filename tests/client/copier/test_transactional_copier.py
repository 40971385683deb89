"""A copier that writes in transactions, in a process with its broker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from echoless.client.async_producer import AsyncProducer
from echoless.client.copier.copier import Copier
from echoless.client.copier.position import PositionError
from echoless.client.copier.records import InputRecord, OutputRecord, to_same_partition
from echoless.client.copier.settings import CopierSettings
from echoless.client.errors import ProducerError
from tests.support.in_process import Running, in_process
from tests.support.raw_client import RawConnection, create_topic
from tests.transactions.in_process_reader import committed

pytestmark = pytest.mark.slow

SETTINGS = CopierSettings(
    group="copiers",
    topics=("in",),
    commit_interval_s=0.02,
    session_timeout_s=0.6,
    transactions=True,
    ends=True,
)
STATEFUL = dataclasses.replace(SETTINGS, transactions=False)
COPY = to_same_partition(topic="out")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker with the topics `in` and `out`, that keeps the records of 1970 that the tests send."""
    settings = {"group_min_session_timeout_ms": 500, "log_retention_ms": -1}
    async with in_process(tmp_path, **settings) as running:
        kafka = await RawConnection.open(running.kafka_address)
        for topic in ("in", "out"):
            await create_topic(kafka, topic, 1)
        await kafka.close()
        yield running


async def send(running: Running, *values: bytes) -> None:
    async with AsyncProducer(running.kafka_address) as producer:
        for value in values:
            await producer.send("in", value, partition=0, timestamp_ms=1)


def copier(running: Running, settings: CopierSettings = SETTINGS, copy=COPY, **more) -> Copier:
    address = running.kafka_address
    return Copier(address, address, settings, copy, **more)


async def copy_all(running: Running, settings: CopierSettings = SETTINGS, copy=COPY) -> None:
    """Runs a copier to the end of the input."""
    await asyncio.wait_for(copier(running, settings, copy).run(), 30)


async def kill_within(running: Running, settings: CopierSettings, *values: bytes) -> None:
    """Copies the values, and stops before that is committed, without an end in order."""
    sent = asyncio.Event()

    def copy(record: InputRecord) -> Iterable[OutputRecord]:
        yield from COPY(record)
        if record.value == values[-1]:
            sent.set()

    await send(running, *values)
    settings = dataclasses.replace(settings, commit_interval_s=60, ends=False)
    task = asyncio.create_task(copier(running, settings, copy).run())
    await asyncio.wait_for(sent.wait(), 30)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_function_that_answers_differently_each_time(running: Running) -> None:
    """Records of a dead copier are never committed, so the function need not repeat itself."""
    numbers = itertools.count()

    def copy(record: InputRecord) -> Iterable[OutputRecord]:
        number = next(numbers)
        for part in range(1 + number % 2):
            yield OutputRecord("out", 0, b"%s-%d-%d" % (record.value, number, part))

    await send(running, b"a", b"b")
    await copy_all(running, copy=copy)
    await kill_within(running, SETTINGS, b"c", b"d")
    await copy_all(running, copy=copy)
    found = [value.partition(b"-")[0] for value in await committed(running, "out") if value]
    assert list(dict.fromkeys(found)) == [b"a", b"b", b"c", b"d"]
    assert len(set(await committed(running, "out"))) == len(found) == 6


async def test_from_a_stateful_copier_and_back(running: Running) -> None:
    """Each goes on where the other has ended in order."""
    for number, settings in enumerate((STATEFUL, SETTINGS, STATEFUL, SETTINGS)):
        await send(running, b"%d" % number)
        await copy_all(running, settings)
    assert await committed(running, "out") == [b"0", b"1", b"2", b"3"]


async def test_after_a_stateful_copier_that_was_killed(running: Running) -> None:
    """Its position does not say what is stored behind it: the error says how to get it to the end."""
    await kill_within(running, dataclasses.replace(STATEFUL, commit_records_max=1), b"a", b"b")
    with pytest.raises(PositionError, match="start it once as it was"):
        await copy_all(running)
    await copy_all(running, STATEFUL)
    await copy_all(running)
    assert await committed(running, "out") == [b"a", b"b"]


async def test_two_clusters_have_no_common_transaction(running: Running, tmp_path: Path) -> None:
    """The copier refuses before it reads anything."""
    async with in_process(tmp_path / "other") as other:
        made = Copier(running.kafka_address, other.kafka_address, SETTINGS, COPY)
        with pytest.raises(ProducerError, match="Leave out transactions"):
            await made.run()
