"""A follower's appends: batches as the leader stored them, in few writes, all of a fetch or nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.storage.file_system import StorageError
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from tests.storage.log_workload import (
    Stored,
    facts_of_entries,
    facts_of_history,
    make_batch,
    new_file_system,
    read_all,
    stamped,
)
from tests.storage.look_up import found
from tests.storage.one_log import NOW_MS, SMALL, OneLog

batch_kinds = st.tuples(
    st.integers(-1, 2), st.integers(1, 3), st.integers(0, 150), st.integers(0, 1), st.booleans()
)
"""Producer id, records, bytes of each, rise of the leader epoch, whether its time is a jump."""


def stored_batches(kinds: list[tuple[int, int, int, int, bool]]) -> list[Stored]:
    """Batches as they follow each other in a leader's log."""
    stored: list[Stored] = []
    next_sequence = dict.fromkeys(range(3), 0)
    end = leader_epoch = 0
    timestamp = NOW_MS
    for producer_id, count, size, rise, is_jump in kinds:
        leader_epoch += rise
        timestamp += 2000 if is_jump else 1
        batch = make_batch(
            producer_id=producer_id,
            epoch=0 if producer_id >= 0 else -1,
            sequence=next_sequence.get(producer_id, -1),
            count=count,
            size=size,
            timestamp=timestamp,
        )
        if producer_id >= 0:
            next_sequence[producer_id] += count
        stored.append(stamped(batch, end, leader_epoch))
        end = stored[-1].end_offset
    return stored


def state_of(log: Log) -> tuple[object, ...]:
    return (
        read_all(log),
        [(s.base_offset, s.next_offset, s.size) for s in log._segments],
        list(log.producers.items()),
        log.leader_epochs.entries,
        found(log.max_timestamp()),
        [found(log.offset_at_timestamp(NOW_MS + ms)) for ms in range(0, 40_000, 1500)],
        [log.read(offset, 1, log.log_end_offset) for offset in range(log.log_end_offset)],
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(batch_kinds, min_size=1, max_size=30), st.lists(st.integers(1, 29), max_size=4))
def test_runs_make_the_same_log_as_single_batches(
    kinds: list[tuple[int, int, int, int, bool]], fetch_ends: list[int]
) -> None:
    """Segments, indexes, epochs and producers do not depend on how batches came together."""
    config = replace(SMALL, roll_ms=5000)
    batches = stored_batches(kinds)
    one_by_one, in_runs = OneLog(config), OneLog(config, new_file_system())
    for stored in batches:
        one_by_one.log.append_replicated(stored.data, NOW_MS)
    ends = [0, *sorted({end for end in fetch_ends if end < len(batches)}), len(batches)]
    for start, end in itertools.pairwise(ends):
        in_runs.log.append_replicated(b"".join(s.data for s in batches[start:end]), NOW_MS)
    expected = state_of(one_by_one.log)
    assert state_of(in_runs.log) == expected
    assert facts_of_entries(in_runs.log.producers.items()) == facts_of_history(
        batches, SMALL.window
    )
    assert state_of(in_runs.open()) == expected
    assert state_of(in_runs.close_and_open()) == expected


def filled(count: int = 3, config: LogConfig = SMALL) -> tuple[OneLog, bytes]:
    """A leader's log of `count` batches, and all of its bytes."""
    one = OneLog(config)
    one.fill(count)
    return one, read_all(one.log)


def follower(config: LogConfig = SMALL) -> Log:
    return OneLog(config, new_file_system()).log


def test_a_follower_ends_up_with_the_same_log_and_producers() -> None:
    """Replicated batches are taken as they are, over segment boundaries and leader epochs."""
    one, _ = filled(20)
    one.append(producer_id=2, leader_epoch=3)
    log = follower()
    assert log.append_replicated(read_all(one.log), NOW_MS) == (20, 0)
    assert read_all(log) == read_all(one.log)
    assert dict(log.producers.items()) == dict(one.log.producers.items())
    assert log.leader_epochs.entries == one.log.leader_epochs.entries
    assert log.segment_count == one.log.segment_count


def test_batches_of_one_segment_are_one_write() -> None:
    """However many batches a fetch brings, the disk is asked once for each segment."""
    one = OneLog(LogConfig())
    leader, data = filled(200, LogConfig())
    first = len(data) // 200
    one.log.append_replicated(data[:first], NOW_MS)  # notes the leader epoch
    before = one.fs.operations  # type: ignore[attr-defined]
    one.log.append_replicated(data[first:], NOW_MS)
    assert one.fs.operations == before + 1  # type: ignore[attr-defined]
    assert one.log.log_end_offset == leader.log.log_end_offset == 200


def test_a_follower_takes_all_of_a_fetch_or_nothing() -> None:
    """A wrong CRC, a fallen offset or epoch, or left-over bytes anywhere refuse the whole."""
    _, data = filled()
    log = follower()
    size = len(data) // 3
    damaged = bytearray(data)
    damaged[-1] ^= 1
    older = stamped(make_batch(), 4, 0).data
    newer = stamped(make_batch(), 3, 2).data
    for bad in (bytes(damaged), data + data, data[:size] + data, data[:-1],
                data + newer + older):  # fmt: skip
        with pytest.raises(DecodeError):
            log.append_replicated(bad, NOW_MS)
        assert (log.log_end_offset, log.size_bytes, len(log.producers)) == (0, 0, 0)
    assert log.append_replicated(b"", NOW_MS) == (-1, 0)
    assert log.append_replicated(data + newer, NOW_MS) == (3, 0)


def test_batches_that_are_there_already_are_refused() -> None:
    """A fetch begins at the log's end; overlap means that one of the two is wrong."""
    _, data = filled()
    log = follower()
    log.append_replicated(data, NOW_MS)
    before = state_of(log)
    for again in (data, data[len(data) // 3 :], data + stamped(make_batch(), 3, 0).data):
        with pytest.raises(DecodeError, match="3 is next"):
            log.append_replicated(again, NOW_MS)
        assert state_of(log) == before


def test_a_failing_disk_leaves_whole_runs() -> None:
    """Written batches count; the rest is as if it had never come, and can come again."""
    leader, data = filled(20)
    one = OneLog()
    one.log.append_replicated(data[: len(data) // 20], NOW_MS)
    one.fs.fail_at = one.fs.operations + 2  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        one.log.append_replicated(data[len(data) // 20 :], NOW_MS)
    end = one.log.log_end_offset
    assert 1 < end < 20
    entry = one.log.producers.get(1)
    assert entry is not None
    assert entry.last_sequence == end - 1
    one.log.append_replicated(data[len(data) // 20 * end :], NOW_MS)
    assert state_of(one.log) == state_of(leader.log)


def test_an_epoch_that_moves_back_is_taken_and_counted() -> None:
    """The leader has decided; but it never decides so, and the caller is to tell people."""
    epochs = [0, 3, 1, 1, 2, 0]
    data = b"".join(
        stamped(make_batch(producer_id=1, epoch=epoch, sequence=0), offset, 0).data
        for offset, epoch in enumerate(epochs)
    )
    log = follower()
    assert log.append_replicated(data, NOW_MS) == (5, 2)
    entry = log.producers.get(1)
    assert entry is not None
    assert entry.producer_epoch == 0
    other = stamped(make_batch(producer_id=2, epoch=0, sequence=0), 6, 0).data
    assert log.append_replicated(other, NOW_MS) == (6, 0)


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    """The leader's segments may be larger; a follower does not refuse what is stored there."""
    large = stamped(make_batch(size=2000), 1, 0)
    small = [stamped(make_batch(), offset, 0) for offset in (0, 2)]
    log = follower()
    log.append_replicated(small[0].data + large.data + small[1].data, NOW_MS)
    assert [segment.base_offset for segment in log._segments] == [0, 1, 2]


def test_replicas_read_to_the_end_and_from_the_first_batch() -> None:
    """Records hidden by DeleteRecords are still in the first segment, and replicas begin there."""
    one, data = filled(20)
    one.log.flush()
    one.log.advance_log_start(8)
    one.log.delete_old_segments(NOW_MS)
    log, first = one.log, one.log.first_offset
    assert 0 < first < 8
    parts, offset = [], first
    while offset < log.log_end_offset:
        part = log.read_for_replica(offset, 300)
        assert 0 < len(part) <= 300
        parts.append(part)
        offset += len(part) // (len(data) // 20)
    assert b"".join(parts) == data[len(data) // 20 * first :]
    assert len(log.read_for_replica(19, 1)) == len(data) // 20
    assert log.read_for_replica(20, 300) == b""
    for outside in (first - 1, 21, -1):
        with pytest.raises(KafkaError) as caught:
            log.read_for_replica(outside, 300)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
