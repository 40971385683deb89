"""Compacted logs of random shapes, read to their end by clients that stand still at an answer without a record."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.record_batch import read_header, walk
from echoless.protocol.records import Record
from echoless.storage import empty_batches
from echoless.storage.compaction.merging import SOURCES_MAX
from echoless.storage.compaction.rewrite import emptied
from echoless.storage.empty_batches import (
    begins_empty,
    may_end_before,
    with_records,
    without_empty,
)
from echoless.storage.log import Log
from tests.storage.compaction.keyed_log import (
    CONFIG,
    append,
    batches_of,
    clean,
    keyed_batch,
    records_in,
    records_of,
)
from tests.storage.log_workload import read_all
from tests.storage.one_log import NOW_MS, OneLog


class Batch(NamedTuple):
    """A batch of a producer (-1: none): a record for each key, a tombstone unless it has a size."""

    producer_id: int
    keys: list[int]
    size: int
    is_last: bool
    """Whether its segment is closed after it."""


batches = st.lists(
    st.builds(
        Batch,
        st.integers(-1, 40),
        st.lists(st.integers(0, 2), min_size=1, max_size=3),
        st.sampled_from([0, 1, 10, 150]),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


def write(log: Log, batch: Batch, sequences: dict[int, int]) -> None:
    value = b"v" * batch.size or None
    sequence = sequences.get(batch.producer_id, 0)
    append(
        log,
        keyed_batch(
            [(b"%d" % key, value) for key in batch.keys],
            producer_id=batch.producer_id,
            sequence=sequence,
        ),
    )
    sequences[batch.producer_id] = sequence + len(batch.keys)
    if batch.is_last:
        log.roll(NOW_MS)


def answer(log: Log, offset: int, bytes_max: int, end: int) -> bytes:
    """The answer of a fetch, however many steps it takes; see `broker/records/fetch.py`."""
    data = log.read(offset, bytes_max, end)
    while begins_empty(data):
        passed = log.pass_empty(offset, end)
        if passed.is_over:
            data = log.read(passed.offset, bytes_max, end)
            break
        assert passed.offset > offset, "each step comes further"
        offset = passed.offset
    batches = without_empty(data).batches
    behind = may_end_before(batches, offset)
    while behind is not None and behind < end:
        passed = log.pass_empty(behind, end)
        if passed.is_over:
            return batches + with_records(log.read(passed.offset, bytes_max, end))
        assert passed.offset >= behind
        behind = passed.offset
    return batches


def read_by_records(log: Log, bytes_max: int, end: int) -> list[Record]:
    """Reads from after the last record, as kafka-go does, and stands still at an answer without a new one."""
    found: list[Record] = []
    offset = log.log_start_offset
    while True:
        data = answer(log, offset, bytes_max, end)
        batches = ((header, data[at : at + header.size]) for at, header in walk(data))
        new = [record for record in records_of(batches) if record.offset >= offset]
        if not new:
            return found
        found += new
        offset = new[-1].offset + 1


def read_stubbornly(log: Log, bytes_max: int, end: int) -> list[Record]:
    """Reads from after the last batch with records, so never beyond an answer that has none."""
    found: list[Record] = []
    offset = log.log_start_offset
    while True:
        data = answer(log, offset, bytes_max, end)
        whole = [(header, data[at : at + header.size]) for at, header in walk(data)]
        full = [header for header, _ in whole if header.record_count]
        if not full:
            return found
        found += [record for record in records_of(whole) if record.offset >= offset]
        offset = full[-1].next_offset


@pytest.mark.slow
@given(batches, batches, st.sampled_from([0, 100, 10_000]), st.integers(0, 10))
@settings(deadline=None)
def test_every_reader_comes_to_the_end(
    first: list[Batch], second: list[Batch], bytes_max: int, below_end: int
) -> None:
    """With and without producers that live, with tombstones that have gone, after a restart and on a replica."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(empty_batches, "BATCHES_MAX", 3)
        patch.setattr(empty_batches, "SEGMENTS_MAX", 2)
        one = OneLog(CONFIG)
        sequences: dict[int, int] = {}
        for number, part in enumerate((first, second)):
            for batch in part:
                write(one.log, batch, sequences)
            clean(one.log, now_ms=NOW_MS + 5000 * number, steady_ms=NOW_MS)
        clean(one.log, now_ms=NOW_MS + 10_000, steady_ms=NOW_MS)
        replica = OneLog(CONFIG)
        replica.log.append_replicated(read_all(one.log), NOW_MS)
        for reopened in (lambda: one.log, lambda: replica.log, one.close_and_open, one.open):
            log = reopened()
            end = max(log.log_end_offset - below_end, 0)
            expected = records_of(
                (header, data) for header, data in batches_of(log) if header.next_offset <= end
            )
            assert read_stubbornly(log, bytes_max, end) == expected
            assert read_by_records(log, bytes_max, end) == expected
            follow_to(log, bytes_max, end)


def follow_to(log: Log, bytes_max: int, end: int) -> None:
    """Reads as Kafka's clients do, from after the last batch, which comes to the end at once."""
    offset = log.log_start_offset
    bound = max((h.next_offset for h, _ in batches_of(log) if h.next_offset <= end), default=0)
    while data := answer(log, offset, bytes_max, end):
        headers = [header for _, header in walk(data)]
        assert len(headers) == 1 or all(header.record_count for header in headers)
        assert read_header(data).last_offset >= offset
        offset = headers[-1].next_offset
        if begins_empty(data):
            assert offset == bound, "an answer without records is the last one"
    assert offset == bound


def test_a_hot_key_leaves_no_empty_batch_but_one_at_the_end() -> None:
    """Full segments of a key that is written again and again become one, in one pass."""
    one = OneLog(CONFIG)
    for _ in range(80):
        append(one.log, keyed_batch([(b"k", b"v" * 100)]))
    one.log.roll()
    closed = one.log.segment_count - 1
    assert 20 < closed <= SOURCES_MAX
    append(one.log, keyed_batch([(b"k", b"v")]))
    assert clean(one.log)
    assert [header.record_count for header, _ in batches_of(one.log)] == [1]
    assert one.log.segment_count == 2


def test_segments_that_keep_nothing_are_merged_so_many_at_a_time() -> None:
    """One swap removes a bounded number of files; the next pass merges what is left."""
    one = OneLog(CONFIG)
    for number in range(SOURCES_MAX * 3):
        append(one.log, keyed_batch([(b"k", b"v" * 300)]))
        if number % 2:
            one.log.roll()
    for left in (4, 2):
        assert clean(one.log)
        assert one.log.segment_count <= left
        append(one.log, keyed_batch([(b"k", b"v")]))
    assert [header.record_count for header, _ in batches_of(one.log)] == [1, 1]


def test_a_segment_that_ends_in_an_empty_batch_is_not_written_again() -> None:
    """A pass that finds it as the last one has left it changes no file."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch([(b"a", b"v" * 400)]))
    append(one.log, keyed_batch([(b"b", b"v")]))
    one.log.roll()
    append(one.log, keyed_batch([(b"b", b"v" * 450), (b"c", b"v")]))
    assert clean(one.log)
    assert [h.record_count for h, _ in batches_of(one.log)] == [1, 0, 2]
    first = [segment for segment in one.log.closed_segments() if not segment.base_offset]
    append(one.log, keyed_batch([(b"c", b"v" * 400)]))
    segments = [*one.log._segments]
    assert clean(one.log)
    assert [h.record_count for h, _ in batches_of(one.log)] == [1, 0, 1, 1]
    assert one.log._segments.first is segments[0]
    assert [*one.log._segments][1] is not segments[1]
    assert first == one.log.closed_segments()[:1]


def test_a_search_is_bounded() -> None:
    """A thousand producers that live leave a thousand empty batches; one search passes a part of them."""
    one = OneLog(replace(CONFIG, segment_bytes=1 << 20))
    for producer_id in range(empty_batches.BATCHES_MAX * 2 + 10):
        append(one.log, keyed_batch([(b"k", b"v")], producer_id=producer_id))
    assert clean(one.log)
    end = one.log.log_end_offset
    steps, passed = 0, one.log.pass_empty(0, end)
    while not passed.is_over:
        steps, passed = steps + 1, one.log.pass_empty(passed.offset, end)
    assert steps == 2
    assert passed.offset == end - 1
    assert read_stubbornly(one.log, 0, end) == records_in(one.log)


def test_empty_batches_are_left_out_of_an_answer() -> None:
    """Wherever they are, and whatever the others hold; an answer of very many batches ends early."""
    empty = emptied(read_header(keyed_batch([(b"k", b"v")])))
    full = [keyed_batch([(b"%d" % n, b"\0\0\0\x31" * 20)]) for n in range(3)]
    for batches in (
        [full[0], empty, empty, full[1], full[2], empty],
        [full[0], full[1], empty, full[2]],
        full,
    ):
        assert without_empty(b"".join(batches)) == (b"".join(full), len(batches))
    assert without_empty(empty) == (empty, 1)
    many = [*full[:1] * (empty_batches.SORTED_MAX - 1), empty, *full]
    assert without_empty(b"".join(many)) == (b"".join(many[:-4]), empty_batches.SORTED_MAX)
    assert without_empty(b"") == (b"", 0)
