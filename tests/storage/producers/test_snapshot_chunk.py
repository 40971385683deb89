"""The producer state that a leader hands to a new replica, piece by piece."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.storage.log import Log
from echoless.storage.producers.snapshot import decode_snapshot
from echoless.storage.producers.snapshot_chunk import SnapshotChunk
from tests.storage.log_workload import Facts, facts_of_entries, new_file_system
from tests.storage.one_log import DIRECTORY, NOW_MS, SMALL, OneLog

PRODUCERS = 40


def shortened() -> OneLog:
    """A log whose first segments are deleted, with the producers of what they held."""
    one = OneLog()
    for producer_id in range(PRODUCERS):
        one.append(producer_id=producer_id)
    one.log.flush()
    shorten(one, 21)
    return one


def shorten(one: OneLog, offset: int) -> None:
    one.log.advance_log_start(offset)
    assert one.log.delete_old_segments(NOW_MS) > 0


def receive(log: Log, bytes_max: int) -> tuple[int, bytes]:
    """All pieces, as a replica asks for them."""
    chunk = log.producer_snapshot_chunk(None, 0, bytes_max)
    data = chunk.data
    while len(data) < chunk.size:
        assert 0 < len(chunk.data) <= bytes_max
        chunk = log.producer_snapshot_chunk(chunk.offset, len(data), bytes_max)
        assert chunk.position == len(data)
        data += chunk.data
    return chunk.offset, data


def facts_of(data: bytes) -> Facts:
    return facts_of_entries(decode_snapshot(data).items())


@pytest.mark.parametrize("bytes_max", [1, 7, 100, 1 << 20])
def test_the_pieces_make_the_snapshot(bytes_max: int) -> None:
    """Whatever their size; it knows the producers whose batches are deleted."""
    one = shortened()
    offset, data = receive(one.log, bytes_max)
    assert one.log.first_offset <= offset <= one.log.log_start_offset
    assert decode_snapshot(data).offset == offset
    assert facts_of(data).keys() == set(range(offset))


def test_a_replica_that_begins_so_ends_up_equal() -> None:
    """The snapshot and the batches after it give the leader's log, and its producers."""
    one = shortened()
    other = OneLog(SMALL, new_file_system())
    offset, data = receive(one.log, 100)
    other.log.reset_to(offset, data, clock_ahead_ms=0, now_ms=NOW_MS)
    while other.log.log_end_offset < one.log.log_end_offset:
        batches = one.log.read_for_replica(other.log.log_end_offset, 500)
        other.log.append_replicated(batches, NOW_MS)
    other.log.advance_log_start(one.log.log_start_offset)
    assert dict(other.log.producers.items()) == dict(one.log.producers.items())
    assert other.log.log_start_offset == one.log.log_start_offset
    assert receive(other.log, 100) == (offset, data)


def test_nothing_deleted_is_an_empty_snapshot() -> None:
    """A log that begins at 0 has no earlier producers, and no file that says so."""
    one = OneLog()
    one.fill(3)
    offset, data = receive(one.log, 10)
    assert (offset, facts_of(data)) == (0, {})
    assert one.files(".snapshot") == []


def test_the_newest_snapshot_below_the_log_start_spares_deleted_batches() -> None:
    """Records hidden by DeleteRecords need not be copied if there is a snapshot after them."""
    one = OneLog()
    one.fill(3)
    one.close_and_open()
    one.fill(2, first_sequence=3)
    one.log.advance_log_start(4)
    assert one.log.first_offset == 0
    assert one.log.producer_snapshot_chunk(None, 0, 100).offset == 3


def test_a_snapshot_that_retention_removed_is_out_of_range() -> None:
    """The replica starts over: the batches after the old snapshot are gone as well."""
    one = shortened()
    chunk = one.log.producer_snapshot_chunk(None, 0, 50)
    shorten(one, 35)
    with pytest.raises(KafkaError) as caught:
        one.log.producer_snapshot_chunk(chunk.offset, len(chunk.data), 50)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    offset, data = receive(one.log, 50)
    assert offset > chunk.offset
    assert facts_of(data).keys() == set(range(offset))


@pytest.mark.parametrize("position", [-1, 1 << 40])
@pytest.mark.parametrize("count", [0, 30])
def test_positions_outside_are_out_of_range(position: int, count: int) -> None:
    """A peer's numbers never reach the disk unchecked."""
    one = OneLog()
    one.fill(count)
    with pytest.raises(KafkaError) as caught:
        one.log.producer_snapshot_chunk(one.log.first_offset, position, 100)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    for offset in (-1, 1, 1 << 70):
        with pytest.raises(KafkaError):
            one.log.producer_snapshot_chunk(offset, 0, 100)


def test_the_last_position_is_the_end() -> None:
    """A request after the last byte returns nothing."""
    one = shortened()
    first = one.log.producer_snapshot_chunk(None, 0, 1 << 20)
    assert first.size == len(first.data)
    behind = one.log.producer_snapshot_chunk(first.offset, first.size, 100)
    assert behind == SnapshotChunk(first.offset, first.size, first.size, b"")


def test_a_lost_snapshot_is_made_up_for_as_a_restart_would() -> None:
    """It comes from an older one, or from nothing.

    What the leader itself would know after a restart.
    """
    one = shortened()
    first = one.log.first_offset
    for name in one.files(".snapshot"):
        if int(name[:20]) <= one.log.log_start_offset:
            one.fs.remove(f"{DIRECTORY}/{name}")
    offset, data = receive(one.log, 100)
    assert (offset, facts_of(data)) == (first, {})
    assert f"{first:020d}.snapshot" in one.files(".snapshot")


def test_no_more_is_read_than_is_asked_for() -> None:
    """A snapshot of a million producers has 200 MB; a piece takes what it says."""
    one = OneLog(replace(SMALL, segment_bytes=1 << 20))
    for producer_id in range(2000):
        one.append(producer_id=producer_id)
    one.close_and_open()
    one.log.advance_log_start(one.log.log_end_offset)
    sizes = []
    read = type(one.fs.open(f"{DIRECTORY}/{one.files('.snapshot')[0]}")).read

    def counting_read(file, position, size):
        sizes.append(size)
        return read(file, position, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.fakes.memory_file_system.MemoryFile.read", counting_read)
        chunk = one.log.producer_snapshot_chunk(None, 0, 1000)
    assert (chunk.offset, len(chunk.data), sizes) == (2000, 1000, [1000])
    assert chunk.size > 100_000
