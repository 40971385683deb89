"""Appending, reading, flushing, cutting and deleting: what the log promises its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from echoless.protocol.dedup import Duplicate, Reject, UnknownProducerId
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.record_batch import compute_crc, read_header
from echoless.storage.appended import Appended
from echoless.storage.log_config import LogConfig
from tests.storage.log_workload import (
    facts_of_entries,
    make_batch,
    read_all,
    stamped,
)
from tests.storage.look_up import found
from tests.storage.one_log import DIRECTORY, NOW_MS, SMALL, OneLog


def test_a_batch_is_stored_with_offset_and_leader_epoch() -> None:
    """Only the first sixteen bytes of a batch change before it is written."""
    one = OneLog()
    batch = make_batch(producer_id=7, epoch=0, sequence=0, count=3)
    answer = one.log.append(memoryview(batch), read_header(batch), 4, NOW_MS)
    assert answer == Appended(0, 2, read_header(batch).max_timestamp, -1)
    second = one.append(producer_id=7, sequence=3, leader_epoch=4)
    assert isinstance(second, Appended)
    assert second.base_offset == 3
    assert one.log.read(0, len(batch), 100) == stamped(batch, 0, 4).data
    assert one.log.leader_epochs.latest_epoch == 4


def test_a_repeat_is_answered_and_not_stored() -> None:
    """The de-duplication decision is taken before anything is written."""
    one = OneLog()
    one.fill(3)
    size = one.log.size_bytes
    repeat = one.append(producer_id=1, sequence=1)
    assert isinstance(repeat, Duplicate)
    assert repeat.original.base_offset == 1
    gap = one.append(producer_id=1, sequence=9)
    assert isinstance(gap, Reject)
    assert gap.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (one.log.size_bytes, one.log.log_end_offset) == (size, 3)


def test_an_unknown_producer_is_judged_by_whether_the_log_ever_held_a_record() -> None:
    """45 on a log that never held one, 59 afterwards, even when all of it is deleted."""
    one = OneLog()
    first = one.append(producer_id=1, sequence=5)
    assert isinstance(first, Reject)
    assert first.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    one.append()
    one.log.advance_log_start(1)
    later = one.append(producer_id=1, sequence=5)
    assert isinstance(later, Reject)
    assert later.code is ErrorCode.UNKNOWN_PRODUCER_ID
    one.log.reconfigure(replace(SMALL, unknown_producer_id=UnknownProducerId.ACCEPT))
    assert isinstance(one.append(producer_id=1, sequence=5), Appended)


def test_accepting_unknown_producers_is_kafkas_rule_on_a_new_log_too() -> None:
    """With `unknown_producer_id=accept` the first batch of all may have any sequence."""
    one = OneLog(replace(SMALL, unknown_producer_id=UnknownProducerId.ACCEPT))
    assert isinstance(one.append(producer_id=1, sequence=5), Appended)


def test_a_batch_that_fits_no_segment_is_refused_before_a_roll() -> None:
    """RECORD_LIST_TOO_LARGE leaves segments, offsets and producers as they were."""
    one = OneLog()
    one.fill(1)
    with pytest.raises(KafkaError) as caught:
        one.append(producer_id=2, size=1000)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert (one.log.segment_count, one.log.log_end_offset, len(one.log.producers)) == (1, 1, 1)


def test_log_append_time_replaces_the_clients_time() -> None:
    """The stored batch carries the broker's time and a CRC that fits; the answer names the time."""
    one = OneLog(replace(SMALL, log_append_time=True))
    assert one.append(producer_id=1, timestamp=5, count=2, now_ms=NOW_MS + 7) == Appended(
        0, 1, NOW_MS + 7, NOW_MS + 7
    )
    data = one.log.read(0, 1000, 10)
    header = read_header(data)
    assert header.is_log_append_time
    assert (header.max_timestamp, header.crc) == (NOW_MS + 7, compute_crc(data))
    assert found(one.log.offset_at_timestamp(NOW_MS)) == (NOW_MS + 7, 0)
    assert isinstance(one.append(producer_id=1, timestamp=5, count=2), Duplicate)


def test_segments_roll_by_size() -> None:
    """No segment grows beyond its limit, and reads go through all of them."""
    one = OneLog()
    one.fill(40)
    assert one.log.segment_count > 4
    sizes = [len(one.fs.read_bytes(f"{DIRECTORY}/{name}")) for name in one.files(".log")]
    assert max(sizes) <= SMALL.segment_bytes
    assert len(read_all(one.log)) == sum(sizes)


def test_segments_roll_by_record_time() -> None:
    """A segment ends when a batch is newer than its first one by more than `roll_ms`."""
    one = OneLog(LogConfig(roll_ms=1000))
    for timestamp, segments in ((NOW_MS, 1), (NOW_MS + 1000, 1), (NOW_MS + 1001, 2), (5, 2)):
        one.append(timestamp=timestamp)
        assert one.log.segment_count == segments


def test_segments_of_records_without_time_roll_by_the_clock() -> None:
    """If the first batch has no timestamp, the age of the file counts."""
    one = OneLog(LogConfig(roll_ms=1000))
    one.append(timestamp=-1)
    one.append(timestamp=-1, now_ms=NOW_MS + 1000)
    assert one.log.segment_count == 1
    one.append(timestamp=-1, now_ms=NOW_MS + 1001)
    assert one.log.segment_count == 2


def test_a_roll_of_an_empty_segment_is_nothing() -> None:
    """A second empty segment never exists."""
    one = OneLog()
    one.log.roll()
    one.append()
    one.log.roll()
    one.log.roll()
    assert one.log.segment_count == 2


def test_a_flush_moves_the_recovery_point_only_when_it_is_done() -> None:
    """Batches appended while a flush runs are not covered by it."""
    one = OneLog()
    one.fill(2)
    pending = one.log.start_flush()
    one.fill(1, first_sequence=2)
    pending.run()
    assert one.log.recovery_point == 0
    one.log.finish_flush(pending)
    assert one.log.recovery_point == 2
    one.log.flush()
    assert one.log.recovery_point == 3


def test_a_cut_cancels_the_flush_that_is_pending() -> None:
    """A flush of records that are gone must not vouch for what is written in their place."""
    one = OneLog()
    one.fill(10)
    pending = one.log.start_flush()
    one.log.truncate_to(4)
    pending.run()
    one.log.finish_flush(pending)
    assert one.log.recovery_point == 0
    one.fill(3, first_sequence=4)
    one.log.flush()
    assert one.log.recovery_point == 7


def test_a_flush_that_ran_before_the_cut_counts_up_to_it() -> None:
    """The owner may cut between `run` and `finish_flush`."""
    one = OneLog()
    one.fill(10)
    pending = one.log.start_flush()
    pending.run()
    one.log.truncate_to(4)
    one.log.finish_flush(pending)
    assert one.log.recovery_point == 4


def test_a_cut_in_the_middle_of_a_batch_takes_the_whole_batch() -> None:
    """The log ends at a batch, never inside one; the producer falls back with it."""
    one = OneLog()
    one.append(producer_id=1, count=3)
    before = facts_of_entries(one.log.producers.items())
    one.append(producer_id=1, sequence=3, count=3)
    one.log.truncate_to(4)
    assert one.log.log_end_offset == 3
    assert facts_of_entries(one.log.producers.items()) == before
    one.log.truncate_to(100)
    assert one.log.log_end_offset == 3


def test_records_below_the_log_start_cannot_be_read_and_producers_stay_known() -> None:
    """DeleteRecords hides records at once; a repeat of a deleted batch is still a repeat."""
    one = OneLog()
    one.fill(5)
    one.log.advance_log_start(4)
    one.log.advance_log_start(2)
    assert one.log.log_start_offset == 4
    with pytest.raises(KafkaError) as caught:
        one.log.read(3, 1000, 10)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert isinstance(one.append(producer_id=1, sequence=3), Duplicate)
    with pytest.raises(KafkaError):
        one.log.advance_log_start(6)


def test_idle_producers_are_forgotten_by_the_brokers_clock() -> None:
    """The time of the append counts, not the time that the records claim."""
    one = OneLog(replace(SMALL, producer_id_expiration_ms=1000))
    one.append(producer_id=1, timestamp=5, now_ms=NOW_MS)
    one.append(producer_id=2, timestamp=5, now_ms=NOW_MS + 500)
    assert one.log.expire_producers(NOW_MS + 999) == 0
    assert one.log.expire_producers(NOW_MS + 1000) == 1
    assert [producer_id for producer_id, _ in one.log.producers.items()] == [2]


@pytest.mark.parametrize("restart", [lambda _: None, OneLog.open, OneLog.close_and_open])
def test_an_expired_producer_goes_on(restart: Callable[[OneLog], object]) -> None:
    """The next batch is stored, the newest is known, an older repeat is 46 and a gap 45."""
    one = OneLog(replace(SMALL, producer_id_expiration_ms=1000))
    one.fill(8)
    assert one.log.expire_producers(NOW_MS + 1000) == 1
    assert list(one.log.producers.items()) == []
    one.log.flush()
    restart(one)
    one.log.expire_producers(NOW_MS + 2000)
    newest, older, gap, following = (
        one.append(producer_id=1, sequence=sequence) for sequence in (7, 6, 9, 8)
    )
    assert isinstance(newest, Duplicate)
    assert newest.original.base_offset == 7
    assert isinstance(older, Reject)
    assert older.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert isinstance(gap, Reject)
    assert gap.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(following, Appended)


def test_accepting_unknown_producers_keeps_none_that_are_forgotten() -> None:
    """With `unknown_producer_id=accept` an expired producer may send anything, as in Kafka."""
    config = replace(SMALL, unknown_producer_id=UnknownProducerId.ACCEPT)
    one = OneLog(replace(config, producer_id_expiration_ms=1000))
    one.fill(8)
    one.log.expire_producers(NOW_MS + 1000)
    assert isinstance(one.append(producer_id=1, sequence=20), Appended)


def test_replayed_batches_count_from_the_time_of_opening() -> None:
    """The log does not keep append times; a later time forgets no one too early."""
    one = OneLog(replace(SMALL, producer_id_expiration_ms=1000))
    one.append(producer_id=1, now_ms=NOW_MS - 900)
    one.open()
    assert one.log.expire_producers(NOW_MS + 999) == 0
    assert one.log.expire_producers(NOW_MS + 1000) == 1


def test_a_clean_restart_keeps_append_times() -> None:
    """The snapshot knows when each producer appended."""
    one = OneLog(replace(SMALL, producer_id_expiration_ms=1000))
    one.append(producer_id=1, now_ms=NOW_MS - 900)
    one.close_and_open()
    assert one.log.expire_producers(NOW_MS + 99) == 0
    assert one.log.expire_producers(NOW_MS + 100) == 1


def test_expiry_takes_a_bounded_slice(monkeypatch) -> None:
    """However many producers are due, one call forgets few enough that requests need not wait long."""
    monkeypatch.setattr("echoless.storage.log.EXPIRED_AT_ONCE_MAX", 2)
    one = OneLog(replace(SMALL, producer_id_expiration_ms=1000))
    for producer_id in range(5):
        one.append(producer_id=producer_id, now_ms=NOW_MS)
    assert [one.log.expire_producers(NOW_MS + 1000) for _ in range(4)] == [2, 2, 1, 0]


def test_a_narrower_window_takes_effect_at_once() -> None:
    """Reconfiguration reaches the producer state."""
    one = OneLog()
    one.fill(5)
    one.log.reconfigure(replace(SMALL, window=2))
    entry = one.log.producers.get(1)
    assert entry is not None
    assert len(entry.batches) == 2
    one.fill(3, first_sequence=5)
    entry = one.log.producers.get(1)
    assert entry is not None
    assert len(entry.batches) == 2


def test_an_idle_log_closes_without_touching_the_disk() -> None:
    """A broker with many idle partitions stops quickly."""
    one = OneLog()
    one.fill(20)
    one.close_and_open()
    operations = one.fs.operations  # type: ignore[attr-defined]
    one.log.close()
    assert one.fs.operations == operations  # type: ignore[attr-defined]


def test_a_stop_writes_no_indexes_that_hold_nothing() -> None:
    """A thousand partitions of a few records each: files without an entry would save no reading."""
    one = OneLog()
    one.fill(1)
    one.close_and_open()
    assert one.files(".index") == one.files(".timeindex") == []
    assert found(one.log.offset_at_timestamp(NOW_MS)) == (NOW_MS, 0)
    operations = one.fs.operations  # type: ignore[attr-defined]
    one.log.close()
    assert one.fs.operations == operations  # type: ignore[attr-defined]


def test_a_stop_leaves_no_index_files_that_lack_records() -> None:
    """Files that an earlier stop left, even without an entry, are written again."""
    one = OneLog(LogConfig())
    one.append(timestamp=NOW_MS)
    indexes = one.log._segments.active.indexes
    indexes.seal()
    indexes.save()
    one.close_and_open()
    one.append(timestamp=NOW_MS + 5)
    log = one.close_and_open()
    assert one.files(".timeindex")
    assert found(log.offset_at_timestamp(NOW_MS + 5)) == (NOW_MS + 5, 1)


def test_a_flush_syncs_the_directory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names are new: here a segment's, its indexes', a snapshot's and the epochs'."""
    one = OneLog()
    one.fill(3)
    one.log.roll()
    one.fill(1, first_sequence=3)
    synced: list[str] = []
    sync = one.fs.sync_directory
    monkeypatch.setattr(one.fs, "sync_directory", lambda path: synced.append(path) or sync(path))
    one.log.flush()
    assert synced == [DIRECTORY]


def test_without_a_descriptor_a_full_segment_goes_on():
    """A roll that could not open its file is put off: nothing is refused, nothing is lost."""
    one = OneLog()
    one.fill(4)
    count = one.log.segment_count
    one.fs.files_max = 0
    one.fill(26, first_sequence=4)
    one.log.roll()
    assert one.log.segment_count == count
    one.fs.files_max = 1
    one.fill(10, first_sequence=30)
    assert one.log.segment_count > count
    log = one.close_and_open()
    assert log.log_end_offset == 40
    one.open()
    assert one.log.log_end_offset == 40
    assert one.log.producers.get(1).batches[-1].last_sequence == 39


def test_the_newest_record_may_be_in_a_segment_after_the_log_start_s() -> None:
    """The newest one of the first segment was deleted, and what is left of that segment is older."""
    one = OneLog()
    one.append(timestamp=9)
    one.append(timestamp=5)
    one.log.roll(NOW_MS)
    one.append(timestamp=7)
    one.append(timestamp=6)
    one.log.advance_log_start(1)
    assert found(one.log.max_timestamp()) == (7, 2)
