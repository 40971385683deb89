"""Passes of compaction in a process beside the broker: the logs that they leave, and a log whose process dies."""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from echoless.broker.partitions import cleaner, cleaner_steps
from echoless.broker.partitions.cleaner_process import CleanerProcess
from echoless.broker.partitions.partition import Partition
from echoless.protocol.records import iterate_records
from echoless.storage.compaction.worker import Progress
from tests.broker.test_compaction import (
    COMPACT,
    cleaned,
    cleaned_to_disk,
    connected,
    pairs,
    produced,
    stored,
)
from tests.storage.compaction.keyed_log import keyed_batch
from tests.support.echoless import SOURCES, Echoless
from tests.support.in_process import Running, flushed, in_process
from tests.support.raw_client import RawConnection, create_topic, fetch_log, nested

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Any pass is large; yields the ids of all processes that were started, which must have ended by then."""
    ids: list[int] = []
    start = CleanerProcess.start.__func__  # type: ignore[attr-defined]

    async def started(cls: type[CleanerProcess]) -> CleanerProcess:
        process: CleanerProcess = await start(cls)
        ids.append(process._process.pid)
        return process

    monkeypatch.setattr(cleaner, "PROCESS_BYTES", 0)
    monkeypatch.setattr(CleanerProcess, "start", classmethod(started))
    yield ids
    for pid in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def filled(kafka: RawConnection, *topics: str) -> None:
    for topic in topics:
        await create_topic(kafka, topic, 1, COMPACT)
        for number in range(60):
            assert (await produced(kafka, keyed_batch(pairs(number % 7, 8)), topic))[0] == 0


def during_the_pass(monkeypatch: pytest.MonkeyPatch, event: object) -> None:
    """Awaits `event` after the first portion of work, and makes portions short."""
    monkeypatch.setattr(cleaner_steps, "_PORTION_S", 0.0)
    work = CleanerProcess.work
    waiting = [event]

    async def interrupted(process: CleanerProcess, seconds: float) -> Progress:
        progress = await work(process, seconds)
        if waiting:
            await waiting.pop()(process)  # type: ignore[operator]
        return progress

    monkeypatch.setattr(CleanerProcess, "work", interrupted)


async def test_a_process_cleans_all_topics_of_a_round(tmp_path: Path, processes: list[int]) -> None:
    """One of them, which has ended after it; nothing is lost by a restart."""
    async with in_process(tmp_path) as running, connected(running) as kafka:
        await filled(kafka, "t", "u")
        await cleaned_to_disk(running)
        assert await running.broker.cleaner.clean_due() == 2
        assert len(processes) == 1
        left = [key for _, key in stored(running)]
        assert len(left) < 20
        assert {*left} == {b"%d" % number for number in (*range(7), 8)}
        assert running.broker.metrics.compaction_removed_bytes_total > 5000
        before = stored(running), stored(running, "u")
    async with in_process(tmp_path) as running:
        assert (stored(running), stored(running, "u")) == before


async def test_a_thread_goes_on_where_a_process_has_died(
    tmp_path: Path,
    processes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next round cleans, without a process, and what the dead one was writing is gone."""

    async def kill(process: CleanerProcess) -> None:
        process._process.send_signal(signal.SIGKILL)

    async with in_process(tmp_path) as running, connected(running) as kafka:
        await filled(kafka, "t")
        await cleaned_to_disk(running)
        leftover = tmp_path / "data" / "t-0" / f"{0:020d}.77.log.cleaned"
        leftover.write_bytes(b"half a segment")
        during_the_pass(monkeypatch, kill)
        assert await running.broker.cleaner.clean_due() == 0
        assert "compaction is left to a thread from now on" in caplog.text
        assert "the process has ended with status -9" in caplog.text
        assert not running.broker.logs.uncleanable
        assert not leftover.exists()
        assert await running.broker.cleaner.clean_due() == 1
        assert len(processes) == 1
        assert len(stored(running)) < 20


async def test_a_thread_cleans_where_no_process_can_be_had(
    tmp_path: Path,
    processes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the same round, with one line."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing"))
    async with in_process(tmp_path) as running, connected(running) as kafka:
        await filled(kafka, "t", "u")
        await cleaned_to_disk(running)
        assert await running.broker.cleaner.clean_due() == 2
    assert not processes
    assert caplog.text.count("cannot start a process") == 1


async def test_a_topic_may_be_deleted_while_a_process_cleans_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: list[int]
) -> None:
    """No failure of the disk; the same process cleans the next topic."""
    async with in_process(tmp_path) as running, connected(running) as kafka:
        broker = running.broker

        async def delete(_: CleanerProcess) -> None:
            topic = broker.registry.topics["u"]
            await kafka.call(
                "delete_topics", 1, topic_names=("u",), timeout=datetime.timedelta(seconds=5)
            )
            while ("u", 0) in broker.logs.logs:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0)
            await broker.replicas.until_removed(topic)

        await filled(kafka, "t", "u")
        await cleaned_to_disk(running)
        during_the_pass(monkeypatch, delete)
        assert await broker.cleaner.clean_due() == 1
        await flushed(broker)
        assert len(processes) == 1
        assert broker.logs.failure is None
        assert not broker.logs.uncleanable
        assert len(stored(running)) < 20


async def test_damage_that_a_process_finds_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a thread had: the log is not cleaned, and is on the list."""
    async with in_process(tmp_path) as running, connected(running) as kafka:
        await filled(kafka, "t")
        await cleaned_to_disk(running)
        path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
        good = path.read_bytes()
        path.write_bytes(bytes([*good[:80], good[80] ^ 1, *good[81:]]))
        assert await running.broker.cleaner.clean_due() == 0
        reason = running.broker.logs.uncleanable["t", 0].reason
        assert reason.startswith(f"{path}: damaged at position 0")


async def test_new_settings_of_a_topic_are_seen_by_the_next_round(tmp_path: Path) -> None:
    """Without waiting for housekeeping, which takes up to five seconds."""
    async with in_process(tmp_path) as running, connected(running) as kafka:
        lazy = COMPACT | {"min.cleanable.dirty.ratio": "1"}
        await create_topic(kafka, "t", 1, lazy)
        for number in range(60):
            await produced(kafka, keyed_batch(pairs(number % 7, 8)))
        assert await cleaned(running, "t") == 0
        assert await running.broker.cleaner.clean_due() == 0
        await altered(kafka, running)
        assert await running.broker.cleaner.clean_due() == 1


async def altered(kafka: RawConnection, running: Running) -> None:
    """Returns when the partition has a ratio of 0."""
    api = "incremental_alter_configs"
    config = nested(api, 1, "AlterableConfig")(
        name="min.cleanable.dirty.ratio", config_operation=0, value="0"
    )
    resource = nested(api, 1, "AlterConfigsResource")(
        resource_type=2, resource_name="t", configs=(config,)
    )
    await kafka.call(api, 1, resources=(resource,), validate_only=False)
    partition: Partition = running.broker.replicas.held["t", 0]
    async with asyncio.timeout(60):
        while partition.log.config.compaction_rules.min_dirty_ratio:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.01)


@pytest.mark.crash
async def test_a_broker_may_be_killed_while_its_process_cleans(tmp_path: Path) -> None:
    """The process ends, the next start removes what it wrote, nothing is lost, and the next pass cleans."""
    lazy, slow = (
        {"log_cleaner_backoff_ms": "3600000"},
        {"log_cleaner_backoff_ms": "100", "log_cleaner_io_max_bytes_per_second": "6000000"},
    )
    broker = Echoless(tmp_path, lazy)
    directory = broker.data_dir / "t-0"
    broker.start()
    try:
        async with connected_to(broker) as kafka:
            await create_topic(kafka, "t", 1, COMPACT | {"segment.bytes": "2MiB"})
            for number in range(600):
                batch = keyed_batch([(b"%d" % (key + number % 2), b"v" * 200) for key in range(50)])
                assert (await produced(kafka, batch))[0] == 0
        assert broker.terminate() == 0
        broker.run_from(SOURCES, slow)
        broker.start()
        pid = await until_written(directory)
        broker.kill()
        async with asyncio.timeout(20):
            while is_alive(pid):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
        broker.run_from(SOURCES, lazy)
        broker.start()
        assert not [*directory.glob("*.cleaned")]
        broker.terminate()
        broker.run_from(SOURCES, {"log_cleaner_backoff_ms": "100"})
        broker.start()
        async with asyncio.timeout(60):
            while sum(path.stat().st_size for path in directory.glob("*.log")) > 3_000_000:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        async with connected_to(broker) as kafka:
            batches = await fetch_log(kafka, "t", 0)
        newest = {
            record.key: record.offset for one in batches for record in iterate_records(one.data)
        }
        assert newest == {b"%d" % key: last_offset(key) for key in range(51)}
    finally:
        broker.kill()


@asynccontextmanager
async def connected_to(broker: Echoless) -> AsyncIterator[RawConnection]:
    connection = await RawConnection.open(broker.kafka_address)
    try:
        yield connection
    finally:
        await connection.close()


def last_offset(key: int) -> int:
    """The offset of the newest record of a key: batch 599 has keys 1 to 50, the one before 0 to 49."""
    return 599 * 50 + key - 1 if key else 598 * 50


async def until_written(directory: Path) -> int:
    """Returns the id of the process that has begun to write a segment."""
    async with asyncio.timeout(60):
        while True:
            found = [name for name in os.listdir(directory) if name.endswith(".cleaned")]  # noqa: PTH208
            if found:
                return int(found[0].split(".")[1])
            await asyncio.sleep(0.002)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended may wait for someone to take note."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
