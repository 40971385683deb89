"""The scrubber: what it finds, how fast it reads, and what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from echoless.broker.metrics import Metrics
from echoless.broker.partitions import scrubber
from echoless.broker.partitions.scrubber import Scrubber
from echoless.storage.file_system import StorageError
from echoless.storage.scrub import Damage
from tests.storage.one_log import DIRECTORY, NOW_MS, OneLog

KEY = ("orders", 0)
RATE = 1_000_000


@dataclass
class Scrubbed:
    """A log of several flushed segments under a scrubber whose sleeps are noted and not slept."""

    one: OneLog = field(default_factory=OneLog)
    damaged: dict[str, Damage] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=Metrics)
    now_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.one.fill(20)
        self.one.log.flush()
        self.logs = {KEY: self.one.log}
        self.scrubber = Scrubber(
            self.one.fs,
            self.logs,
            self.damaged,
            self.metrics,
            bytes_per_s=RATE,
            monotonic_s=lambda: self.now_s,
        )

    @property
    def closed_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.one.log.closed_segments())

    def flip(self, name: str, position: int) -> None:
        """Flips a bit in the open file of the log too, as a disk does."""
        node = self.one.fs._file(f"{DIRECTORY}/{name}")
        node.content[position] ^= 1


@pytest.fixture
def scrubbed(monkeypatch: pytest.MonkeyPatch) -> Scrubbed:
    scrubbed = Scrubbed()
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        scrubbed.slept_s.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    return scrubbed


async def test_what_is_whole_is_read_once_a_week(scrubbed: Scrubbed) -> None:
    """It is read at the configured rate, and nothing is reported."""
    await scrubbed.scrubber.scrub_due()
    total = scrubbed.closed_bytes
    assert 0 < total < scrubbed.one.log.size_bytes
    assert scrubbed.metrics.scrubbed_bytes_total == total
    assert sum(scrubbed.slept_s) == pytest.approx(total / RATE)
    assert scrubbed.damaged == {}
    await scrubbed.scrubber.scrub_due()
    assert scrubbed.metrics.scrubbed_bytes_total == total
    scrubbed.now_s += 7 * 24 * 3600
    await scrubbed.scrubber.scrub_due()
    assert scrubbed.metrics.scrubbed_bytes_total == 2 * total


async def test_damage_is_named_until_it_is_gone(
    scrubbed: Scrubbed, caplog: pytest.LogCaptureFixture
) -> None:
    """File, position and reason; gone with the segment."""
    name = scrubbed.one.files(".log")[1]
    path = f"{DIRECTORY}/{name}"
    scrubbed.flip(name, 80)
    await scrubbed.scrubber.scrub_due()
    assert scrubbed.damaged == {path: Damage(*KEY, path, 0, "the CRC does not match")}
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert f"{path} is damaged at position 0: the CRC does not match" in line
    log = scrubbed.one.log
    log.advance_log_start(15)
    assert log.delete_old_segments(NOW_MS) >= 2
    scrubbed.scrubber.note_changed([KEY])  # as housekeeping does
    await scrubbed.scrubber.scrub_due()
    assert scrubbed.damaged == {}


async def test_damage_that_was_mended_is_forgotten(scrubbed: Scrubbed) -> None:
    """A copy was brought back."""
    name = scrubbed.one.files(".log")[0]
    scrubbed.flip(name, 80)
    await scrubbed.scrubber.scrub_due()
    assert len(scrubbed.damaged) == 1
    scrubbed.flip(name, 80)
    scrubbed.now_s += 7 * 24 * 3600
    await scrubbed.scrubber.scrub_due()
    assert scrubbed.damaged == {}


async def test_a_segment_that_goes_meanwhile_is_no_finding(
    scrubbed: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention, deletion and cuts take segments away between two steps."""
    run = scrubber.DISK.run
    scrubbed.flip(scrubbed.one.files(".log")[1], 80)

    async def cut_first(work: Callable[[], object]) -> object:
        if scrubbed.one.log.log_end_offset > 3:
            scrubbed.one.log.truncate_to(3)
        return await run(work)

    monkeypatch.setattr(scrubber.DISK, "run", cut_first)
    await scrubbed.scrubber.scrub_due()
    assert scrubbed.damaged == {}
    scrubbed.logs.clear()
    await scrubbed.scrubber.scrub_due()


async def test_a_file_that_cannot_be_opened_is_due_again(
    scrubbed: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file descriptor to spare nothing is reported, and nothing forgotten."""

    def refuse(path: str, *, create: bool = False) -> None:
        raise StorageError(path, f"cannot open: too many open files, {create}")

    with monkeypatch.context() as patch:
        patch.setattr(scrubbed.one.fs, "open", refuse)
        await scrubbed.scrubber.scrub_due()
    assert (scrubbed.damaged, scrubbed.metrics.scrubbed_bytes_total) == ({}, 0)
    await scrubbed.scrubber.scrub_due()
    assert scrubbed.metrics.scrubbed_bytes_total == scrubbed.closed_bytes
