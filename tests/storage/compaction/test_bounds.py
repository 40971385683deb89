"""Bounds that a pass keeps: the recovery point on disk, a flush that is at work, the time of idle segments."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from echoless.storage.compaction.swap import Cleaned, PendingSwap
from echoless.storage.log import Log
from echoless.storage.log_directory import LogDirectory
from echoless.storage.opening import LogOpening
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.storage.compaction.keyed_log import (
    CONFIG,
    append,
    batches_of,
    clean,
    keyed_batch,
    records_in,
)
from tests.storage.log_workload import facts_of_entries, new_file_system, read_all
from tests.storage.one_log import DIRECTORY, NOW_MS, OneLog

KEY = ("orders", 0)


def filled(log: Log, count: int = 6) -> None:
    for _ in range(count):
        append(log, keyed_batch([(b"k", b"v")]))


def opened() -> LogDirectory:
    return LogDirectory.open(
        "/data", broker_id=1, fs=new_file_system(), now_ms=NOW_MS, config_for=lambda _: CONFIG
    )


def test_nothing_is_cleaned_above_the_recovery_point_on_disk() -> None:
    """Hazard H9: until a checkpoint has it, a crash would have the cleaned batches scanned."""
    directory = opened()
    log = directory.create(*KEY, uuid.UUID(int=1), CONFIG, now_ms=NOW_MS)
    filled(log)
    assert not clean(log), "flushed, but the recovery point on disk is older"
    directory.checkpoint({KEY: log.log_end_offset})
    assert clean(log)
    assert [record.offset for record in records_in(log)] == [5]


def test_a_checkpoint_keeps_how_far_compaction_has_come() -> None:
    """The next start goes on there; a cut below it lowers it on disk first."""
    directory = opened()
    log = directory.create(*KEY, uuid.UUID(int=1), CONFIG, now_ms=NOW_MS)
    filled(log)
    log.flush()
    directory.checkpoint({KEY: 6})
    log.roll()
    log.flush()
    directory.checkpoint({KEY: 6})
    assert clean(log)
    directory.checkpoint({KEY: 6})
    fs = directory._fs
    path = "/data/cleaner-offset-checkpoint"
    assert b"orders 0 6" in fs.read_bytes(path)
    filled(log, 2)
    log.truncate_to(6)
    assert b"orders 0 6" in fs.read_bytes(path)
    log.truncate_to(0)
    assert b"orders 0 0" in fs.read_bytes(path)
    directory.close({KEY: 0})
    fs.write_atomic(path, b"damaged")
    again = LogDirectory.open(
        "/data", broker_id=1, fs=fs, now_ms=NOW_MS, config_for=lambda _: CONFIG
    )
    assert again.logs[KEY].compaction.cleaned_to == 0


def test_a_swap_waits_for_a_flush_of_the_same_segments() -> None:
    """A flush that writes the old indexes would leave them beside the new segment."""
    one = OneLog(CONFIG)
    filled(one.log)
    one.log.roll()
    one.log.flush()
    compaction = one.log.compaction
    found = compaction.find_pass(
        CONFIG, log_start_offset=0, log_end_offset=6, limit=6, now_ms=NOW_MS
    )
    assert found is not None
    cleaning = compaction.start(found, CONFIG, map_bytes_max=1000, now_ms=NOW_MS, steady_ms=NOW_MS)
    (cleaned,) = [step for step in cleaning.steps() if isinstance(step, Cleaned)]
    sources = one.log._segments.closed
    assert [source.base_offset for source in cleaned.sources] == [s.base_offset for s in sources]
    for source in sources:
        source.indexes.is_unsaved = True
    flush = one.log.start_flush()
    assert compaction.start_swap(cleaned, CONFIG) is None
    flush.run()
    one.log.finish_flush(flush)
    swap = compaction.start_swap(cleaned, CONFIG)
    assert swap is not None
    for source in sources:
        source.indexes.is_unsaved = True
    during = one.log.start_flush()
    assert not {*during.unsaved} & {*sources}
    swap.run()
    one.log.finish_swap(swap)
    during.run()
    one.log.finish_flush(during)
    assert [record.offset for record in records_in(one.log)] == [5]
    one.log.flush()
    assert [record.offset for record in records_in(one.close_and_open())] == [5]


def test_a_swap_that_is_under_way_when_the_log_closes_is_finished() -> None:
    """The new segment is in the log that is closed, whether the swap had begun or not."""
    for has_run in (True, False):
        one = OneLog(CONFIG)
        filled(one.log)
        one.log.roll()
        one.log.flush()
        compaction = one.log.compaction
        found = compaction.find_pass(
            CONFIG, log_start_offset=0, log_end_offset=6, limit=6, now_ms=NOW_MS
        )
        assert found is not None
        cleaning = compaction.start(
            found, CONFIG, map_bytes_max=1000, now_ms=NOW_MS, steady_ms=NOW_MS
        )
        (cleaned,) = [step for step in cleaning.steps() if isinstance(step, Cleaned)]
        swap = compaction.start_swap(cleaned, CONFIG)
        assert swap is not None
        if has_run:
            swap.run()
        log = one.close_and_open()
        assert [record.offset for record in records_in(log)][-1:] == [5]
        assert (len(records_in(log)) == 1) == has_run


def test_an_idle_segment_is_closed_so_that_it_can_be_cleaned() -> None:
    """Kafka closes one on the next append alone, so an idle topic is never compacted there."""
    one = OneLog(CONFIG)
    filled(one.log)
    roll_ms = CONFIG.roll_ms or 0
    assert not one.log.roll_if_idle(NOW_MS + roll_ms)
    assert one.log.roll_if_idle(NOW_MS + roll_ms + 1)
    assert not one.log.roll_if_idle(NOW_MS + 2 * roll_ms), "it is empty now"
    assert clean(one.log, is_rolled=False)


class _Watched(MemoryFileSystem):
    """Calls `look` before each change of the disk: what the log's owner may do while a thread swaps."""

    look: Callable[[], None] | None = None

    def operate(self, path: str, verb: str) -> None:
        look, self.look = self.look, None
        if look is not None:
            look()
        self.look = look
        super().operate(path, verb)


def swapping(one: OneLog) -> PendingSwap:
    """A swap of all closed segments that has begun and not run."""
    compaction, end = one.log.compaction, one.log.log_end_offset
    config = one.config
    found = compaction.find_pass(
        config, log_start_offset=0, log_end_offset=end, limit=end, now_ms=NOW_MS
    )
    assert found is not None
    cleaning = compaction.start(found, config, map_bytes_max=1000, now_ms=NOW_MS, steady_ms=NOW_MS)
    (cleaned,) = [step for step in cleaning.steps() if isinstance(step, Cleaned)]
    swap = compaction.start_swap(cleaned, config)
    assert swap is not None
    return swap


def test_retention_waits_for_a_swap() -> None:
    """It asks for the age of files that are going: a missing one would take the disk offline."""
    one = OneLog(replace(CONFIG, retention_ms=1000, segment_bytes=4000), fs=_Watched())
    assert isinstance(one.fs, _Watched)
    for number in range(3):
        one.fs.now_ms = NOW_MS + 500 * number
        for _ in range(2):
            append(one.log, keyed_batch([(b"k", b"v")], timestamp=-1))
        one.log.roll()
    one.log.flush()
    swap = swapping(one)
    one.fs.look = lambda: one.log.retire_old_segments(NOW_MS + 1200, one.log.log_end_offset)
    swap.run()
    one.log.finish_swap(swap)
    assert one.log.log_start_offset == 0
    one.log.flush()
    one.log.retire_old_segments(NOW_MS + 2500, one.log.log_end_offset)
    assert one.log.log_start_offset == 6


class _Vanishing(MemoryFileSystem):
    """Removes an index right after someone has seen it, as a swap in another thread may."""

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if found and path.endswith(self.vanishing):
            super().remove(path)
        return found

    vanishing: tuple[str, ...] = ()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_may_go_while_the_owner_reads_it(suffix: str) -> None:
    """A swap removes those of the old segments, which are still read until it is finished."""
    one = OneLog(CONFIG, fs=_Vanishing())
    filled(one.log, 20)
    assert isinstance(one.fs, _Vanishing)
    for read in (
        lambda log: len(records_in(log)),
        lambda log: next(log.offset_at_timestamp(NOW_MS)),
        lambda log: next(log.max_timestamp()),
    ):
        log = one.close_and_open()
        one.fs.vanishing = (suffix,)
        found = read(log)
        one.fs.vanishing = ()
        assert read(one.close_and_open()) == found


def test_what_is_appended_after_a_loss_is_dirty() -> None:
    """An operator has accepted that the log ends earlier: the offset reached before names other records now.

    A tombstone whose key no pass has read would go at its horizon, and the older value would come back.
    """
    one = OneLog(CONFIG)
    append(one.log, keyed_batch([(b"k", b"old")]))
    one.log.close()
    opening = LogOpening(directory=DIRECTORY, config=CONFIG, fs=one.fs, now_ms=NOW_MS, cleaned_to=4)
    log = Log.open(opening)
    append(log, keyed_batch([(b"k", None)]))
    append(log, keyed_batch([(b"a", b"v"), (b"b", b"v"), (b"c", b"v")]))
    for number in range(3):
        clean(log, now_ms=NOW_MS + 2000 * number)
        append(log, keyed_batch([(b"c", b"v")]))
    assert [record.key for record in records_in(log)] == [b"a", b"b", b"c", b"c"]


def fill_and_merge(one: OneLog, count: int = 60) -> None:
    """Has a pass merge segments that keep next to nothing."""
    for sequence in range(count):
        append(one.log, keyed_batch([(b"k", b"v" * 40)], producer_id=7, sequence=sequence))
    before = one.log.segment_count
    assert clean(one.log)
    assert one.log.segment_count < before / 2


def test_producer_snapshots_of_merged_segments_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Some at a time, with a log line; a truncation meanwhile waits for them, and recovery needs none of them."""
    caplog.set_level("INFO")
    one = OneLog(CONFIG)
    fill_and_merge(one)
    before = len(one.files(".snapshot"))
    bases = {name.removesuffix(".log") for name in one.files(".log")}
    monkeypatch.setattr(
        "echoless.storage.old_segments.SNAPSHOTS_AT_ONCE_MAX", before - len(bases) - 1
    )
    for _ in range(2):
        removal = one.log.start_removal()
        assert removal is not None
        removal.run()
        one.log.finish_removal(removal)
    assert one.log.start_removal() is None
    assert {name.removesuffix(".snapshot") for name in one.files(".snapshot")} <= bases
    assert caplog.text.count("producer snapshots that nothing needs") == 2
    append(one.log, keyed_batch([(b"k", b"v")], producer_id=7, sequence=60))
    one.log.flush()
    known = facts_of_entries(one.log.producers.items())
    again = one.open(recovery_point=one.log.recovery_point)
    assert facts_of_entries(again.producers.items()) == known


def test_a_cut_comes_after_snapshots_that_are_being_removed() -> None:
    """One that is written again at the same offset must not go in place of the old one."""
    one = OneLog(CONFIG)
    fill_and_merge(one)
    removal = one.log.start_removal()
    assert removal is not None
    one.log.truncate_to(0)
    assert removal.is_done
    for sequence in range(40):
        append(one.log, keyed_batch([(b"k", b"v" * 40)], producer_id=7, sequence=sequence))
    one.log.flush()
    again = one.files(".snapshot")
    assert len(again) > 5
    removal.run()
    assert one.files(".snapshot") == again


def test_a_batch_stays_as_long_as_a_window_may_hold_it() -> None:
    """A producer that appended again since the snapshot lives, and its window still has what it wrote before that."""
    one = OneLog(replace(CONFIG, producer_id_expiration_ms=1000))

    def write(sequence: int, now_ms: int) -> None:
        append(
            one.log, keyed_batch([(b"k", b"v")], producer_id=7, sequence=sequence), NOW_MS + now_ms
        )

    for sequence in range(5):
        write(sequence, 0)
    one.log.roll()
    write(5, 900)
    now_ms = NOW_MS + 1800
    assert one.log.expire_producers(now_ms) == 0
    assert clean(one.log, steady_ms=now_ms, is_rolled=False), (
        "up to the snapshot before its last append"
    )
    replica = OneLog(one.config)
    replica.log.append_replicated(read_all(one.log), now_ms)
    for log in (one.log, replica.log):
        entry = log.producers.get(7)
        assert entry is not None
        assert [batch.last_offset for batch in entry.batches] == [1, 2, 3, 4, 5]
    write(6, 1801)
    assert clean(one.log, steady_ms=NOW_MS + 1801 + 5000)
    assert len(batches_of(one.log)) < 3, "no window has the others any more"
