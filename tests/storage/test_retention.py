"""Which segments and snapshots go, and that no producer is forgotten with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.log import Log
from storage.log_config import LogConfig
from storage.retention import snapshots_to_remove
from tests.storage.log_workload import facts_of_entries
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
    """What stays is never less than `retention_bytes`."""
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
    """Where no record has a timestamp, the file's last change counts."""
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
