"""The cost of the clocks of a broker: what has changed or is due, not what lies idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from echoless.broker import housekeeping
from echoless.broker.broker import Broker
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.partitions import scrubber
from echoless.broker.partitions.partition_registry import PartitionRegistry
from echoless.broker.partitions.scrubber import Scrubber
from echoless.protocol.record_batch import read_header
from echoless.storage import paths
from echoless.storage.checkpoints import OffsetCheckpoint
from echoless.storage.file_system import StorageError
from echoless.storage.log_directory import LogDirectory
from tests.broker.test_restart import STAND_ALONE, Host
from tests.storage.log_workload import make_batch
from tests.support.counted_rows import CountedRows
from tests.support.in_process import flushed

PARTITIONS = 6000
MINUTE_MS = 60_000
HOUSEKEEPING_MS = 5_000
CLEANER_MS = 15_000
NEVER_S = 1_000_000
ONE = ("idle", 321)


class IdleHost(Host):
    """A broker of many partitions whose tables count each look at a row."""

    broker: Broker
    scrubber: Scrubber

    @property
    def tables(self) -> list[CountedRows[Any, Any]]:
        held, logs = self.broker.replicas.held, self.broker.logs.logs
        assert isinstance(held, CountedRows)
        assert isinstance(logs, CountedRows)
        return [held, logs]

    def forget(self) -> None:
        for table in self.tables:
            table.forget()

    @property
    def looks(self) -> int:
        return sum(table.looks for table in self.tables)

    @property
    def keys_seen(self) -> set[Any]:
        return {key for table in self.tables for key in table.keys_seen}

    async def pass_time(self, for_ms: int) -> None:
        """Has everything run that the clock starts in that time; a log that was appended to has been flushed."""
        await flushed(self.broker)
        for ms in range(HOUSEKEEPING_MS, for_ms + 1, HOUSEKEEPING_MS):
            self.run(HOUSEKEEPING_MS)
            await self.keep_house()
            if not ms % CLEANER_MS:
                await self.broker.cleaner.clean_due()
            if not ms % MINUTE_MS:
                await self.scrubber.scrub_due()

    def append(self) -> None:
        batch = make_batch(producer_id=1, epoch=0, sequence=0, timestamp=self.wall_ms)
        self.broker.replicas.held[ONE].append(batch, read_header(batch), self.wall_ms)

    def recovery_point(self) -> int:
        path = paths.join("/data", paths.RECOVERY_POINT_CHECKPOINT)
        return OffsetCheckpoint(self.disk, path).read()[ONE]


@pytest.fixture
async def host(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[IdleHost]:
    """A broker whose first rounds have been through everything once."""
    async with _started(monkeypatch, PARTITIONS, {"retention.ms": "3600000"}) as host:
        yield host


@asynccontextmanager
async def _started(
    monkeypatch: pytest.MonkeyPatch, partitions: int, config: dict[str, str]
) -> AsyncIterator[IdleHost]:
    for kind, name in ((PartitionRegistry, "held"), (LogDirectory, "logs")):
        monkeypatch.setattr(kind, "__init__", _counting(kind.__init__, name))
    for module, name in ((housekeeping, "INTERVAL_S"), (scrubber, "_LOOK_AGAIN_S")):
        monkeypatch.setattr(module, name, NEVER_S)  # no round but those of `pass_time`
    host = IdleHost(STAND_ALONE, log_cleaner_backoff_ms=NEVER_S * 1000)
    broker = await host.start()
    host.scrubber = broker._scrubber()
    broker.housekeeping.listen(host.scrubber.note_changed)
    await broker.services.topics.create(NewTopic("idle", partitions=partitions, config=config))
    await host.pass_time(MINUTE_MS)
    host.forget()
    yield host
    await broker.stop()


def _counting(init: Any, name: str) -> Any:
    def with_counted_rows(self: Any, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        setattr(self, name, CountedRows())

    return with_counted_rows


async def test_a_minute_of_many_idle_partitions_looks_at_few(host: IdleHost) -> None:
    """Twelve rounds of housekeeping, four of the cleaner and one of the scrubber."""
    await host.pass_time(MINUTE_MS)
    assert host.looks < PARTITIONS
    assert not host.keys_seen, "none of them has changed, or is due"


async def test_only_what_was_appended_to_is_looked_at(host: IdleHost) -> None:
    """And it is checkpointed by the next round; all other lines stay as they are."""
    host.append()
    await host.pass_time(MINUTE_MS)
    assert host.keys_seen == {ONE}
    assert host.looks < 20
    assert host.recovery_point() == 1


async def test_the_one_with_records_is_looked_at_when_they_expire(host: IdleHost) -> None:
    """Its segment is closed and goes, as when every round went through all partitions."""
    host.append()
    await host.pass_time(MINUTE_MS)
    log = host.broker.replicas.held[ONE].log
    host.forget()
    await host.pass_time(50 * MINUTE_MS)
    assert not host.keys_seen
    host.run(10 * MINUTE_MS)
    for _ in range(3):
        await host.keep_house()
        await flushed(host.broker)
    assert log.log_start_offset == 1
    assert log.segment_count == 1
    assert host.keys_seen == {ONE}


async def test_a_change_outlives_a_checkpoint_that_fails(
    host: IdleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is forgotten only when it is on disk (H25)."""
    host.append()
    await flushed(host.broker)
    write_atomic = host.disk.write_atomic

    def fail(path: str, data: bytes, **options: Any) -> None:
        raise StorageError(path, "no space")

    monkeypatch.setattr(host.disk, "write_atomic", fail)
    with pytest.raises(StorageError):
        await host.keep_house()
    monkeypatch.setattr(host.disk, "write_atomic", write_atomic)
    await host.keep_house()
    assert host.recovery_point() == 1


async def test_time_alone_closes_the_segment_of_an_idle_compacted_log_and_makes_it_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After `segment.ms` it is closed, and cleaned when its records are old enough (`min.compaction.lag.ms`)."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": str(10 * MINUTE_MS),
        "min.compaction.lag.ms": str(30 * MINUTE_MS),
        "min.cleanable.dirty.ratio": "0",
    }
    async with _started(monkeypatch, ONE[1] + 1, config) as host:
        host.append()
        await host.pass_time(MINUTE_MS)
        log = host.broker.replicas.held[ONE].log
        host.forget()
        await host.pass_time(8 * MINUTE_MS)
        assert (log.segment_count, host.looks) == (1, 0)
        await host.pass_time(2 * MINUTE_MS)
        assert log.segment_count == 2
        await flushed(host.broker)
        await host.pass_time(10 * MINUTE_MS)
        assert log.compaction.cleaned_to == 0
        await host.pass_time(15 * MINUTE_MS)
        assert log.compaction.cleaned_to == 1
        await host.pass_time(MINUTE_MS)
        host.forget()
        await host.pass_time(MINUTE_MS)
        assert host.looks == 0, "there is nothing left to clean"
