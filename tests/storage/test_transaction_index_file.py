"""The file of aborted transactions goes with its segment, through cuts, compaction and crashes."""

from __future__ import annotations

import logging
from typing import Final

import pytest

from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.log import Log
from echoless.storage.producers.open_transactions import ClosedTransaction
from echoless.storage.transaction_index import ENTRY_SIZE, TransactionIndex
from echoless.storage.transaction_index_file import (
    cut_transaction_index,
    merge_transaction_indexes,
    read_transaction_index,
)
from tests.fakes.memory_file_system import PowerFailure, keep_all, keep_none
from tests.storage.compaction.keyed_log import clean
from tests.storage.compaction.test_swap import operations_of_a_pass, reopened, some, written
from tests.storage.log_workload import new_file_system
from tests.storage.one_log import DIRECTORY, NOW_MS, OneLog

SURVIVALS: Final = (keep_all, keep_none, some(1), some(2))


def aborted_at(offset: int) -> ClosedTransaction:
    """A transaction of one record, which the marker at `offset` aborted."""
    return ClosedTransaction(7, max(offset - 1, 0), offset, offset + 1)


def put(fs: FileSystem, base_offset: int, *markers: int) -> str:
    """Writes the file of a segment, durably; returns its path."""
    index = TransactionIndex(base_offset)
    for marker in markers:
        index.append(aborted_at(marker))
    path = paths.offset_file(DIRECTORY, base_offset, paths.TRANSACTION_INDEX)
    fs.write_atomic(path, index.encode())
    return path


def markers_of(fs: FileSystem, base_offset: int) -> list[int]:
    return [one.last_offset for one in read_transaction_index(fs, DIRECTORY, base_offset)]


def markers_in(log: Log) -> list[int]:
    """The offsets of all markers, each of which its segment's file has to hold."""
    found = []
    for segment in log._segments:
        mine = markers_of(log._fs, segment.base_offset)
        assert all(segment.base_offset <= marker < segment.next_offset for marker in mine)
        found += mine
    return found


def log_with_files() -> OneLog:
    """A log of some segments, with an aborted transaction at every offset."""
    one = OneLog()
    one.fs.sync_directory("/data")
    while one.log.segment_count < 4:
        one.append(size=100)
    one.log.flush()
    for segment in one.log._segments:
        put(one.fs, segment.base_offset, *range(segment.base_offset, segment.next_offset))
    return one


def test_a_cut_drops_the_markers_above_it() -> None:
    """Those below stay, and the files of the segments above the cut go."""
    one = log_with_files()
    end = one.log.log_end_offset
    for cut in range(end - 1, 0, -1):
        one.log.truncate_to(cut)
        assert markers_in(one.log) == [*range(cut)]
    left = [name for name in one.fs.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    assert left == [paths.name_of(paths.offset_file("", 0, paths.TRANSACTION_INDEX))]


@pytest.mark.slow
def test_a_crash_in_a_cut_leaves_no_marker_above_the_end() -> None:
    """At any operation on disk: the log ends before the cut or after it, and so do the markers."""
    cut = 3
    one = log_with_files()
    before = one.fs.operations
    one.log.truncate_to(cut)
    operations = range(before, one.fs.operations)
    assert len(operations) > 8
    for operation in operations:
        one = log_with_files()
        one.fs.lose_power_at = operation
        with pytest.raises(PowerFailure):
            one.log.truncate_to(cut)
        for survive in SURVIVALS:
            log = reopened(one.fs.after_power_loss(survive, operation), 0)
            assert log.log_end_offset >= cut
            assert markers_in(log) == [*range(log.log_end_offset)]


def test_files_go_with_their_segments() -> None:
    """Retention removes them, and a start removes one that a crash has left without its log."""
    one = log_with_files()
    second = one.log._segments.closed[1].base_offset
    one.log.advance_log_start(second)
    one.log.delete_old_segments(NOW_MS)
    assert markers_in(one.log) == [*range(second, one.log.log_end_offset)]
    assert not one.fs.exists(paths.offset_file(DIRECTORY, 0, paths.TRANSACTION_INDEX))
    orphan = put(one.fs, 0, 0)
    one.open(log_start_offset=second)
    assert not one.fs.exists(orphan)
    assert markers_in(one.log) == [*range(second, one.log.log_end_offset)]


def test_a_clean_start_leaves_the_files_alone() -> None:
    """Nothing reads them then; nor does a roll change them."""
    one = log_with_files()
    markers = markers_in(one.log)
    one.log.roll()
    one.close_and_open()
    assert markers_in(one.log) == markers


def test_compaction_merges_the_files() -> None:
    """Batches of transactions stay in a pass, so the markers do, in the file of the merged segment."""
    one = written(1)
    for segment in one.log._segments.closed:
        put(one.fs, segment.base_offset, segment.base_offset)
    segments, markers = one.log.segment_count, markers_in(one.log)
    assert clean(one.log)
    assert one.log.segment_count < segments
    assert markers_in(one.log) == markers
    files = [name for name in one.fs.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    assert len(files) == one.log.segment_count - 1


@pytest.mark.slow
def test_a_crash_in_a_pass_of_compaction_loses_no_marker() -> None:
    """At any operation on disk, each marker is in the file of the segment that holds its offset."""
    count = len(operations_of_a_pass(1))
    reached = 0
    for extra in range(2 * count):
        one = written(1)
        for segment in one.log._segments.closed:
            put(one.fs, segment.base_offset, segment.base_offset)
        markers, point = markers_in(one.log), one.log.recovery_point
        one.fs.lose_power_at = one.fs.operations + extra
        try:
            clean(one.log)
        except PowerFailure:
            reached += 1
        else:
            break
        for survive in SURVIVALS:
            survivor = one.fs.after_power_loss(survive, extra)
            log = reopened(survivor, point)
            found = {
                marker: segment.base_offset
                for segment in log._segments
                for marker in markers_of(survivor, segment.base_offset)
                if marker < segment.next_offset
            }
            assert [*found] == markers
    assert reached > count


def test_merging_again_changes_nothing() -> None:
    """A crash may leave the first file complete, and some of the others."""
    fs = new_file_system()
    fs.make_directory(DIRECTORY)
    first, second, third = put(fs, 0, 1, 2), put(fs, 10, 11), put(fs, 20, 20, 23)
    merge_transaction_indexes(fs, DIRECTORY, 0, [10, 20])
    merged = fs.read_bytes(first)
    assert markers_of(fs, 0) == [1, 2, 11, 20, 23]
    fs.remove(third)
    merge_transaction_indexes(fs, DIRECTORY, 0, [10, 20])
    fs.remove(second)
    merge_transaction_indexes(fs, DIRECTORY, 0, [10, 20])
    assert fs.read_bytes(first) == merged


def test_nothing_is_written_where_nothing_changes() -> None:
    """A log without aborted transactions has no such file, before and after."""
    fs = new_file_system()
    fs.make_directory(DIRECTORY)
    cut_transaction_index(fs, DIRECTORY, 0, 0)
    merge_transaction_indexes(fs, DIRECTORY, 0, [10])
    assert fs.list_directory(DIRECTORY) == []
    put(fs, 0, 1)
    before = fs.operations
    cut_transaction_index(fs, DIRECTORY, 0, 2)
    assert fs.operations == before


def test_damage_is_named_and_what_is_before_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """The first bytes that cannot be an entry end the file, and the log says so."""
    fs = new_file_system()
    fs.make_directory(DIRECTORY)
    path = put(fs, 5, 6, 8, 9)
    data = bytearray(fs.read_bytes(path))
    data[ENTRY_SIZE] = 1
    fs.write_atomic(path, data)
    with caplog.at_level(logging.ERROR):
        assert markers_of(fs, 5) == [6]
    (line,) = caplog.messages
    assert line == (
        f"{path}: the bytes from position 34 to 102 are no entries: aborted transactions with a marker after offset 6 "
        "are not known as such"
    )
