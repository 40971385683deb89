"""Disks that fail, and how open files hear of it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.broker.faults.file_faults import FileFaults
from echoless.broker.faults.file_system import FaultyFileSystem
from echoless.broker.faults.reading_rules import read_rules
from echoless.broker.faults.rule import ActiveRule
from echoless.broker.faults.rules import Rules
from echoless.storage.file_system import StorageError
from echoless.storage.os_file_system import OsFileSystem
from tests.broker.faults.lab import TOPIC, Lab, batch, produce
from tests.contracts.file_system import FileSystemContract
from tests.support.in_process import in_process


class TestFaultyFileSystem(FileSystemContract):
    """Without rules it keeps the contract of the wrapped one."""

    @pytest.fixture
    def fs(self) -> FaultyFileSystem:
        return FaultyFileSystem(OsFileSystem())

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)

    def test_without_rules_the_methods_are_those_of_the_file_behind(
        self, fs: FaultyFileSystem, root: str
    ) -> None:
        """Nothing is asked on the way to the disk."""
        file = fs.open(f"{root}/a", create=True)
        assert file.append == file._file.append
        assert file.sync == file._file.sync


class Recorder:
    """Collects hits and crashes."""

    def __init__(self) -> None:
        self.crashed: list[str | None] = []
        self.slept: list[float] = []
        self.hits: list[tuple[str, str]] = []
        self.crash_again = lambda: None

    def on_broker(self, rule: ActiveRule, where: str = "", parts: Any = ()) -> None:
        self.hits.append((rule.name, where.rpartition("/")[2]))

    def crash(self, rule: ActiveRule) -> None:
        self.crashed.append(rule.action.point)
        self.crash_again()


@pytest.fixture
async def disk():
    """A function that gives a file system with these rules, and what they did; no broker."""

    def make(*rules: tuple[Any, dict[str, Any]]) -> tuple[FaultyFileSystem, Recorder]:
        texts = read_rules([{"action": action, "match": match} for action, match in rules])
        in_force = Rules(Random(1), lambda: None, lambda: 0).add(texts)
        recorder = Recorder()
        fs = FaultyFileSystem(OsFileSystem())
        fs.use(FileFaults(in_force, recorder, recorder.crash, recorder.slept.append))
        return fs, recorder

    return make


async def test_a_write_fails_where_the_rule_matches(disk: Any, tmp_path: Path) -> None:
    """The partition and the file's name match; the file is unchanged."""
    fs, recorder = disk(({"type": "fail_write", "path": "*.log"}, {"topic": "a-b", "partition": 3}))
    for directory in ("a-b-3", "a-b-4"):
        (tmp_path / directory).mkdir()
    files = {
        name: fs.open(f"{tmp_path}/{name}", create=True)
        for name in ("a-b-3/0.log", "a-b-3/0.index", "a-b-4/0.log")
    }
    with pytest.raises(StorageError, match=r"No space left on device \(the fault rule fault-1"):
        files["a-b-3/0.log"].append([b"x"])
    assert files["a-b-3/0.log"].size == 0
    assert files["a-b-3/0.index"].append([b"x"]) == 0
    assert files["a-b-4/0.log"].append([b"x"]) == 0
    await asyncio.sleep(0)
    assert recorder.hits == [("fault-1", "0.log")]


async def test_a_replaced_file_can_fail_too(disk: Any, tmp_path: Path) -> None:
    """Checkpoints are written as a whole: writing and syncing them are writes and syncs."""
    fs, _ = disk(
        ({"type": "fail_write", "path": "a"}, {}), ({"type": "fail_fsync", "path": "b"}, {})
    )
    for name in ("a", "b"):
        with pytest.raises(StorageError, match="the fault rule"):
            fs.write_atomic(f"{tmp_path}/{name}", b"x")
    fs.write_atomic(f"{tmp_path}/c", b"x")


async def test_slow_files_are_slow_and_then_do_it(disk: Any, tmp_path: Path) -> None:
    """Every rule that matches acts, in their order."""
    fs, recorder = disk(
        ({"type": "slow_write", "ms": 5}, {}), ({"type": "slow_fsync", "ms": 7}, {})
    )
    file = fs.open(f"{tmp_path}/a", create=True)
    assert file.append([b"x"]) == 0
    file.sync()
    assert recorder.slept == [0.005, 0.007]


async def test_a_crash_point_is_reached_between_two_steps(disk: Any, tmp_path: Path) -> None:
    """Half a snapshot is in its temporary file; a new segment is there and empty."""
    fs, recorder = disk(
        ({"type": "crash", "point": "in_snapshot"}, {}),
        ({"type": "crash", "point": "in_roll"}, {"topic": "t", "partition": 0}),
    )
    (tmp_path / "t-0").mkdir()
    fs.open(f"{tmp_path}/t-0/{'0' * 20}.log", create=True)
    assert recorder.crashed == []  # the first segment is no roll
    fs.open(f"{tmp_path}/t-0/{'0' * 19}5.log", create=True)
    assert recorder.crashed == ["in_roll"]
    recorder.crash_again = lambda: 1 / 0  # in place of the end of the process
    with pytest.raises(ZeroDivisionError):
        fs.write_atomic(f"{tmp_path}/t-0/5.snapshot", b"abcd")
    assert recorder.crashed == ["in_roll", "in_snapshot"]
    assert (tmp_path / "t-0" / "5.snapshot.tmp").read_bytes() == b"ab"
    assert not (tmp_path / "t-0" / "5.snapshot").exists()


async def test_a_full_disk_takes_the_broker_offline(lab: Lab) -> None:
    """Files opened before the rule fail too; the client gets KAFKA_STORAGE_ERROR."""
    kafka = await lab.connect()
    assert await produce(kafka, batch(0)) == [0]
    lab.add("fail_write", {"topic": TOPIC, "partition": 0})
    assert await produce(kafka, batch(1)) == [56]
    assert lab.broker.logs.failure is not None
    await asyncio.sleep(0)
    (hit,) = lab.hits()
    assert (hit.action, hit.api) == ("fail_write", "")
    assert [one.base_sequence for one in hit.batches] == [1]


async def test_a_broker_whose_disk_failed_gives_its_directory_back(tmp_path: Path) -> None:
    """When it stops, not when garbage is collected: another broker may start on it at once."""
    async with in_process(tmp_path) as running:
        lab = Lab(running)
        await lab.create_topic()
        kafka = await lab.connect()
        lab.add("fail_write", {"topic": TOPIC})
        assert await produce(kafka, batch(0)) == [56]
    async with in_process(tmp_path) as next_one:
        assert next_one.broker.logs.failure is None
        assert running.broker.logs.failure is not None  # kept until now, as a log line might


async def test_one_batch_of_a_producer_is_picked_out_of_the_appends(lab: Lab) -> None:
    """Files know the batches that are written to them."""
    kafka = await lab.connect()
    lab.add("fail_write", {"base_sequence": 2})
    assert [await produce(kafka, batch(sequence)) for sequence in range(3)] == [[0], [0], [56]]


async def test_a_failed_fsync_before_the_acknowledgement(tmp_path: Path) -> None:
    """With log_flush=commit nothing is acknowledged before it is synced."""
    async with in_process(tmp_path, log_flush=LogFlush.COMMIT) as running:
        lab = Lab(running)
        await lab.create_topic()
        kafka = await lab.connect()
        assert await produce(kafka, batch(0)) == [0]
        lab.add("fail_fsync", {"topic": TOPIC})
        assert await produce(kafka, batch(1)) == [56]
        await kafka.close()


async def test_rules_are_counted_from_any_thread(disk: Any, tmp_path: Path) -> None:
    """Syncs run in threads: none is lost, and none is counted twice."""
    fs, recorder = disk(({"type": "slow_fsync", "ms": 0}, {}))
    file = fs.open(f"{tmp_path}/a", create=True)
    threads = [threading.Thread(target=lambda: [file.sync() for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)
    assert len(recorder.slept) == len(recorder.hits) == 200
