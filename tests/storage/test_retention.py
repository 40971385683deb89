"""Which segments and snapshots go, and that no producer is forgotten with them."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace

import pytest

from echoless.protocol.record_batch import read_header
from echoless.storage.file_system import OutOfDescriptorsError
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory
from echoless.storage.pending_segment_removal import PendingSegmentRemoval
from echoless.storage.retention import snapshots_to_remove
from tests.storage.log_workload import (
    DATA_DIR,
    KEY,
    facts_of_entries,
    make_batch,
    new_file_system,
)
from tests.storage.one_log import DIRECTORY, NOW_MS, SMALL, OneLog

HOUR_MS = 3_600_000


def aged(config: LogConfig, count: int = 20) -> OneLog:
    """A flushed log with one record for each hour."""
    one = OneLog(config)
    for hour in range(count):
        one.append(producer_id=1, sequence=hour, timestamp=hour * HOUR_MS)
    one.log.flush()
    return one


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log._segments]


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    """The limit is exact, and a segment stays as long as one of its records is young enough."""
    one = aged(replace(SMALL, retention_ms=10 * HOUR_MS))
    before = bases(one.log)
    newest = before[1] - 1
    assert one.log.delete_old_segments((newest + 10) * HOUR_MS) == 0
    assert one.log.delete_old_segments((newest + 10) * HOUR_MS + 1) == 1
    assert bases(one.log) == before[1:]
    assert one.log.log_start_offset == before[1]
    assert len(one.files(".log")) == len(one.files(".index")) + 1 == len(before) - 1


def test_segments_go_while_the_rest_is_large_enough() -> None:
    """The remaining size is never less than `retention_bytes`."""
    one = aged(SMALL)
    total, first = one.log.size_bytes, len(one.fs.read_bytes(f"{DIRECTORY}/{one.files('.log')[0]}"))
    one.log.reconfigure(replace(SMALL, retention_bytes=total - first + 1))
    assert one.log.delete_old_segments(NOW_MS) == 0
    one.log.reconfigure(replace(SMALL, retention_bytes=total - first))
    assert one.log.delete_old_segments(NOW_MS) == 1
    assert one.log.size_bytes == total - first


def test_segments_below_the_log_start_go() -> None:
    """The segment that holds the log start stays."""
    one = aged(SMALL)
    before = bases(one.log)
    one.log.advance_log_start(before[2] + 1)
    assert one.log.delete_old_segments(NOW_MS) == 2
    assert one.log.log_start_offset == before[2] + 1
    assert bases(one.log) == before[2:]


def test_records_without_time_age_with_their_file() -> None:
    """If no record has a timestamp, the file's last change counts."""
    one = OneLog(replace(SMALL, retention_ms=1000))
    one.fs.now_ms = NOW_MS  # type: ignore[attr-defined]
    for _ in range(20):
        one.append(timestamp=-1)
    one.log.flush()
    assert one.log.delete_old_segments(NOW_MS + 1000) == 0
    closed = one.log.segment_count - 1
    assert one.log.delete_old_segments(NOW_MS + 1001) == closed


def test_the_written_segment_is_rolled_when_it_has_expired() -> None:
    """It goes once the roll has been flushed; the log is then empty, and its producers known."""
    one = aged(replace(SMALL, retention_ms=HOUR_MS))
    now_ms = 1000 * HOUR_MS
    one.log.delete_old_segments(now_ms)
    one.log.flush()
    one.log.delete_old_segments(now_ms)
    assert (one.log.log_start_offset, one.log.log_end_offset, one.log.size_bytes) == (20, 20, 0)
    for reopen in (one.open, one.close_and_open):
        entry = reopen().producers.get(1)
        assert entry is not None
        assert entry.last_sequence == 19


def test_only_what_is_flushed_and_replicated_goes() -> None:
    """Neither the recovery point nor the high watermark may lie inside what is deleted."""
    one = OneLog(replace(SMALL, retention_ms=HOUR_MS))
    one.fill(20)
    before = bases(one.log)
    now_ms = 1000 * HOUR_MS
    assert one.log.delete_old_segments(now_ms) == 0
    one.log.flush()
    assert one.log.delete_old_segments(now_ms, high_watermark=before[2] + 1) == 2
    assert bases(one.log)[0] == before[2]


def test_segments_are_gone_for_good_before_their_snapshots_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk may keep two removals in any order: an old segment must not come back without its."""
    one = aged(SMALL)
    one.log.advance_log_start(15)
    done: list[tuple[str, str]] = []
    monkeypatch.setattr(one.fs, "operate", lambda path, verb: done.append((verb, path[-9:])))
    one.log.delete_old_segments(NOW_MS)
    last_log = max(number for number, (_, name) in enumerate(done) if name.endswith(".log"))
    first_snapshot = done.index(("remove", ".snapshot"))
    assert ("sync", DIRECTORY[-9:]) in done[last_log:first_snapshot]


@pytest.mark.parametrize("restarts", [1, 2])
def test_producers_of_deleted_records_survive_a_kill(restarts: int) -> None:
    """The newest snapshot at or below the log start stays, and is found again."""
    one = aged(SMALL)
    one.append(producer_id=2)
    one.log.flush()
    known = facts_of_entries(one.log.producers.items())
    one.log.advance_log_start(one.log.log_end_offset - 1)
    one.log.delete_old_segments(NOW_MS)
    for _ in range(restarts):
        assert facts_of_entries(one.open().producers.items()) == known


def test_snapshots_that_something_may_need_stay() -> None:
    """One at each base, the newest, the newest at or below the log start and the first base."""
    assert snapshots_to_remove([], [0], 0) == []
    assert snapshots_to_remove([10, 20, 25, 30, 37], [20, 30], 22) == [10, 25]
    assert snapshots_to_remove([10, 15], [20, 30], 20) == [10]
    assert snapshots_to_remove([10, 15, 22, 24], [20, 30], 23) == [10]


def in_directory() -> tuple[LogDirectory, Log, list[int]]:
    """A log whose log start was moved into its fourth segment, not on disk yet; and all bases."""
    directory = LogDirectory.open(
        DATA_DIR, broker_id=1, fs=new_file_system(), now_ms=NOW_MS, config_for=lambda _topic: SMALL
    )
    log = directory.create(*KEY, uuid.UUID(int=7), SMALL, now_ms=NOW_MS)
    for sequence in range(20):
        batch = make_batch(producer_id=1, epoch=0, sequence=sequence)
        log.append(batch, read_header(batch), 0, NOW_MS)
    log.flush()
    before = bases(log)
    log.advance_log_start(before[3])
    return directory, log, before


def files(directory: LogDirectory, suffix: str = ".log") -> list[int]:
    """Base offsets of what is on disk."""
    names = directory._fs.list_directory(DIRECTORY)
    return sorted(int(name[:20]) for name in names if name.endswith(suffix))


def test_segments_go_once_the_log_start_is_on_disk() -> None:
    """A start misses segments above the log start that it finds."""
    directory, log, before = in_directory()
    assert log.start_removal() is None
    pending = directory.start_checkpoint({})
    assert log.start_removal() is None
    pending.run()
    removal = log.start_removal()
    assert removal is not None
    assert bases(log) == before[3:]
    assert files(directory) == before
    removal.run()
    log.finish_removal(removal)
    assert files(directory) == before[3:]
    assert log.start_removal() is None


def test_a_checkpoint_that_gave_way_lets_nothing_go() -> None:
    """Its log starts are not on disk."""
    directory, log, before = in_directory()
    pending = directory.start_checkpoint({})
    log.truncate_to(19)
    pending.run()
    assert log.start_removal() is None
    assert files(directory) == before


def test_every_removal_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """How many segments and bytes, why, and where the log begins now."""
    one = aged(replace(SMALL, retention_ms=HOUR_MS))
    before = bases(one.log)
    one.log.advance_log_start(before[1])
    size = sum(len(one.fs.read_bytes(f"{DIRECTORY}/{name}")) for name in one.files(".log")[:3])
    newest = before[3] - 1
    with caplog.at_level(logging.INFO):
        assert one.log.delete_old_segments((newest + 1) * HOUR_MS + 1) == 3
    (line,) = [r.getMessage() for r in caplog.records if "removed" in r.getMessage()]
    assert f"removed 3 segments with {size} bytes" in line
    assert "1 by DeleteRecords, 2 by retention.ms" in line
    assert f"starts at offset {before[3]}" in line


def started_removal() -> tuple[LogDirectory, Log, list[int], PendingSegmentRemoval]:
    directory, log, before = in_directory()
    directory.checkpoint({KEY: 20})
    removal = log.start_removal()
    assert removal is not None
    return directory, log, before, removal


def test_a_cut_completes_the_removal_that_is_pending() -> None:
    """Nothing is removed beneath it later on."""
    directory, log, before, removal = started_removal()
    log.truncate_to(before[3] + 1)
    assert removal.is_done
    assert files(directory) == [before[3]]
    removal.run()
    log.finish_removal(removal)
    assert log.log_end_offset == before[3] + 1


@pytest.mark.parametrize("end", ["close", "delete"])
def test_the_end_of_a_log_cancels_its_removal(end: str) -> None:
    """The thread may come later; the next start finishes what a close left."""
    directory, log, before, removal = started_removal()
    if end == "close":
        directory.close({KEY: 20})
    else:
        directory.delete(*KEY)
    removal.run()
    log.finish_removal(removal)
    if end == "delete":
        assert not directory._fs.exists(DIRECTORY)
        return
    again = LogDirectory.open(
        DATA_DIR, broker_id=1, fs=directory._fs, now_ms=NOW_MS, config_for=lambda _topic: SMALL
    )
    assert again.logs[KEY].log_start_offset == before[3]
    assert bases(again.logs[KEY]) == before
    again.checkpoint({KEY: 20})
    assert again.logs[KEY].delete_old_segments(NOW_MS) == 3
    assert files(again) == before[3:]


def test_a_removal_that_lacked_a_descriptor_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next round gets the same one, and continues where it was."""
    directory, log, before, removal = started_removal()

    def refuse(path: str) -> None:
        raise OutOfDescriptorsError(path, "no descriptor is left")

    with monkeypatch.context() as without:
        without.setattr(directory._fs, "sync_directory", refuse)
        with pytest.raises(OutOfDescriptorsError):
            removal.run()
    log.finish_removal(removal)
    assert log.start_removal() is removal
    removal.run()
    log.finish_removal(removal)
    assert log.start_removal() is None
    assert files(directory) == before[3:]
