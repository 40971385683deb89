"""Compaction leaves holes in the offsets: batches never overlap and never fall, but need not meet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.broker.partitions.core.divergence import cut_offset, find_divergence
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import NO_TIMESTAMP, leader_stamp, read_header, walk
from echoless.storage import paths
from echoless.storage.file_system import CorruptLogError
from echoless.storage.log import Log
from echoless.storage.offset_order import RELATIVE_OFFSET_MAX
from echoless.storage.opening import LogOpening
from echoless.storage.scrub import ClosedSegment, SegmentScrub
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.storage.log_workload import Stored, make_batch, read_all, stamped
from tests.storage.look_up import found
from tests.storage.one_log import DIRECTORY, NOW_MS, SMALL, OneLog

HOLE = range(3, 8)
"""Offsets that are missing from `with_a_hole`."""


def batches_of(*offsets: int, leader_epoch: int = 0, count: int = 1) -> list[Stored]:
    """One batch at each of these offsets, as a leader's compaction left them; times rise with them."""
    return [
        stamped(make_batch(count=count, timestamp=NOW_MS + offset), offset, leader_epoch)
        for offset in offsets
    ]


def data_of(batches: list[Stored]) -> bytes:
    return b"".join(stored.data for stored in batches)


def follower_of(batches: list[Stored]) -> OneLog:
    one = OneLog()
    one.log.append_replicated(data_of(batches), NOW_MS)
    return one


def with_a_hole() -> OneLog:
    return follower_of(batches_of(0, 1, 2, 8, 9))


def reopened(one: OneLog, *, clean: bool) -> Log:
    return one.close_and_open() if clean else one.open(recovery_point=one.log.recovery_point)


def rewrite(one: OneLog, name: str, *, without: int) -> None:
    """Takes one batch out of a segment file, as compaction does, with the indexes."""
    path = f"{DIRECTORY}/{name}"
    data = one.fs.read_bytes(path)
    parts = [data[at : at + header.size] for at, header in walk(data)]
    del parts[without]
    one.fs.write_atomic(path, b"".join(parts))
    for suffix in (paths.OFFSET_INDEX, paths.TIME_INDEX):
        one.fs.remove(path.replace(paths.LOG, suffix))


@pytest.mark.parametrize("clean", [True, False])
def test_a_replica_with_a_hole_serves_what_its_leader_has(*, clean: bool) -> None:
    """An offset in the hole gives the next batch, before and after a restart."""
    one = with_a_hole()
    expected = data_of(batches_of(0, 1, 2, 8, 9))
    for is_reopened in (False, True):
        log = reopened(one, clean=clean) if is_reopened else one.log
        assert (log.log_start_offset, log.log_end_offset) == (0, 10)
        assert read_all(log) == expected
        for offset in HOLE:
            assert read_header(log.read(offset, 1, 10)).base_offset == 8
        assert log.read(5, 1000, 8) == b""
        assert found(log.offset_at_timestamp(NOW_MS + 4)) == (NOW_MS + 8, 8)
    again = OneLog()
    again.log.append_replicated(one.log.read_for_replica(0, 10_000), NOW_MS)
    assert read_all(again.log) == expected


@settings(max_examples=40)
@given(
    offsets=st.sets(st.integers(0, 80), min_size=1),
    cut=st.integers(0, 81),
    clean=st.booleans(),
    pieces=st.integers(1, 5),
)
def test_any_holes_do_what_a_list_of_batches_does(
    offsets: set[int], cut: int, *, clean: bool, pieces: int
) -> None:
    """Reads, look-ups, a restart, a cut and another restart, with batches of one record in segments of six."""
    batches = batches_of(*sorted(offsets))
    one = OneLog(replace(SMALL, index_interval_bytes=100))
    step = -(-len(batches) // pieces)
    for start in range(0, len(batches), step):
        one.log.append_replicated(data_of(batches[start : start + step]), NOW_MS)
    check(one.log, batches)
    check(reopened(one, clean=clean), batches)
    one.log.truncate_to(cut)
    left = [stored for stored in batches if stored.header.base_offset < cut]
    check(one.log, left)
    check(reopened(one, clean=clean), left)
    more = make_batch(timestamp=NOW_MS + one.log.log_end_offset)
    one.log.append(more, read_header(more), 0, NOW_MS)
    check(reopened(one, clean=clean), [*left, stamped(more, one.log.log_end_offset - 1, 0)])


@pytest.mark.parametrize("restart", [None, "clean", "killed"])
def test_a_leader_epoch_begins_at_the_hole_before_its_first_batch(restart: str | None) -> None:
    """A replica whose log ends in the hole is cut below it: how far the epoch before went is not known.

    Here epoch 4 began at 3, and compaction has removed its first batches before this replica copied the log.
    A former leader would keep what it appended at 3 and 4 in epoch 1, which was never committed, and which
    its producers have stored again since.
    """
    former = follower_of(batches_of(0, 1, 2, 3, 4, leader_epoch=1)).log
    one = follower_of([*batches_of(0, 1, 2, leader_epoch=1), *batches_of(8, 9, leader_epoch=4)])
    if restart == "killed":
        one.open()
    elif restart == "clean":
        one.close_and_open()
    assert [*one.log.leader_epochs.entries] == [(1, 0), (4, 3)]
    divergence = find_divergence(
        one.log.leader_epochs, 10, former.log_end_offset, former.leader_epochs.latest_epoch
    )
    assert divergence is not None
    former.truncate_to(cut_offset(former.leader_epochs, former.log_end_offset, divergence))
    former.append_replicated(one.log.read_for_replica(former.log_end_offset, 10_000), NOW_MS)
    assert read_all(former) == read_all(one.log)
    assert former.leader_epochs.entries == one.log.leader_epochs.entries


def check(log: Log, batches: list[Stored]) -> None:
    """The log holds these batches and no others, and finds each of them."""
    end = batches[-1].end_offset if batches else 0
    assert log.log_end_offset == end
    assert read_all(log) == data_of(batches)
    for wanted in range(end):
        stored = next(one for one in batches if one.header.base_offset >= wanted)
        assert log.read(wanted, 1, end) == stored.data
        timestamp = stored.header.max_timestamp
        answer = found(log.offset_at_timestamp(NOW_MS + wanted))
        assert answer == (timestamp, stored.header.base_offset)
    newest = batches[-1].header.max_timestamp if batches else NO_TIMESTAMP
    assert found(log.max_timestamp()) == (newest, end - 1)


@pytest.mark.parametrize("clean", [True, False])
def test_a_compacted_segment_is_opened_and_scrubbed(*, clean: bool) -> None:
    """A batch is missing within a closed file; what is in the others is found as before."""
    one = OneLog()
    one.fill(20)
    one.log.close()
    name = one.files(".log")[1]
    base = int(name[:20])
    rewrite(one, name, without=2)
    log = one.open(recovery_point=20 if clean else 0, clean=clean)
    assert log.log_end_offset == 20
    assert read_header(log.read(base + 2, 1, 20)).base_offset == base + 3
    assert not log.recovery.is_notable
    scrub_all(one.fs, base, log)


def scrub_all(fs: MemoryFileSystem, base: int, log: Log) -> None:
    bases = [int(file[:20]) for file in sorted(fs.list_directory(DIRECTORY)) if paths.LOG in file]
    following = bases[bases.index(base) + 1]
    path = paths.offset_file(DIRECTORY, base, paths.LOG)
    segment = ClosedSegment(path, base, following, 0)
    assert following <= log.log_end_offset
    scrub = SegmentScrub(fs, segment, 100)
    while scrub.step():
        pass
    scrub.close()


@pytest.mark.parametrize("without", ["last", "all"])
def test_a_segment_keeps_its_last_batch(without: str) -> None:
    """Compaction may empty it, not remove it: else a file that lost its end would pass for compacted."""
    one = OneLog()
    one.fill(20)
    one.log.close()
    name = one.files(".log")[1]
    if without == "last":
        rewrite(one, name, without=-1)
    else:
        one.fs.write_atomic(f"{DIRECTORY}/{name}", b"")
    with pytest.raises(CorruptLogError, match="records end before offset"):
        one.open(recovery_point=20, clean=True)
    with pytest.raises(CorruptLogError):
        one.open(recovery_point=20)


BROKEN = {
    "overlap": [batches_of(0, count=3)[0], batches_of(2)[0]],
    "fall": [*batches_of(0, 5), batches_of(3)[0]],
    "again": [*batches_of(0, 5), batches_of(5)[0]],
    "too far": batches_of(0, RELATIVE_OFFSET_MAX + 2),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_replica_refuses_offsets_that_overlap_or_fall(name: str) -> None:
    """Nothing of the fetch is written. Nor is a hole that no segment can span."""
    one = OneLog()
    with pytest.raises(DecodeError):
        one.log.append_replicated(data_of(BROKEN[name]), NOW_MS)
    assert (one.log.log_end_offset, one.log.size_bytes) == (0, 0)


@pytest.mark.parametrize("name", BROKEN)
def test_offsets_that_overlap_or_fall_are_damage(name: str) -> None:
    """Cut above the recovery point, refused below it, found by the scrubber in a closed segment."""
    one = OneLog()
    file = f"{DIRECTORY}/{'0' * 20}.log"
    *good, bad = BROKEN[name]
    end, size = good[-1].end_offset, len(data_of(good))
    one.fs.write_atomic(file, data_of([*good, bad]))
    with pytest.raises(CorruptLogError):
        one.open(recovery_point=end + 1)
    assert one.open().log_end_offset == end
    assert one.log.size_bytes == size
    one.fs.write_atomic(file, data_of([*good, bad]))
    scrub = SegmentScrub(one.fs, ClosedSegment(file, 0, bad.end_offset, size), 10_000)
    with pytest.raises(CorruptLogError) as caught:
        scrub.step()
    assert caught.value.position == size


@pytest.mark.parametrize("offset", HOLE)
def test_a_cut_in_a_hole_ends_the_log_at_the_last_batch_below_it(offset: int) -> None:
    """A log never ends where no batch does: its recovery point would be missed at the next start."""
    one = with_a_hole()
    one.log.flush()
    one.log.truncate_to(offset)
    assert one.log.log_end_offset == 3
    assert one.log.recovery_point <= 3
    assert read_all(one.close_and_open()) == data_of(batches_of(0, 1, 2))


def test_an_offset_that_no_index_can_hold_is_damage() -> None:
    """A flipped bit in an offset, which no checksum covers, met while an index is rebuilt."""
    one = OneLog()
    one.fill(20)
    one.log.close()
    path = f"{DIRECTORY}/{one.files('.log')[0]}"
    data = one.fs.read_bytes(path)
    header = read_header(data)
    far = leader_stamp(header, 2**40, 0) + data[16 : header.size]
    one.fs.write_atomic(path, far + data[header.size :])
    for suffix in (paths.OFFSET_INDEX, paths.TIME_INDEX):
        one.fs.remove(path.replace(paths.LOG, suffix))
    opening = LogOpening(directory=DIRECTORY, config=SMALL, fs=one.fs, now_ms=NOW_MS)
    with pytest.raises(CorruptLogError):
        Log.open(replace(opening, recovery_point=20, clean=True)).read(0, 1000, 20)
