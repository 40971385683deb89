"""The batches that a consumer hands out, beside a naive reading of the whole log."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.data_batches import data_batches
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import leader_stamp, read_header, seal_batch
from echoless.protocol.records import Record, build_batch

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT
PLAIN = "plain"
Step = tuple[int, MarkerType | str | int]
"""Producer, and a marker, a batch outside transactions, or the number of records in one within."""


class History(NamedTuple):
    """A log, and what became of it."""

    batches: list[bytes]
    aborted: list[tuple[int, int, int]]
    """Producer id, first offset, offset of the marker."""
    shown: set[int]
    """The first offsets of batches that readers of committed records are given."""


def history_of(steps: list[Step]) -> History:
    batches: list[bytes] = []
    aborted: list[tuple[int, int, int]] = []
    shown: set[int] = set()
    running: dict[int, list[int]] = {}
    offset = 0
    for producer_id, what in steps:
        if isinstance(what, MarkerType):
            batch = build_marker(EndMarker(what, 0), producer_id, 0, 1000)
            ended = running.pop(producer_id, [])
            if what is COMMIT:
                shown.update(ended)
            elif ended:
                aborted.append((producer_id, ended[0], offset))
        else:
            is_transactional = what != PLAIN
            records = [Record(0, 1000, None, b"v")] * (what if isinstance(what, int) else 1)
            batch = build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=is_transactional,
            )
            if is_transactional:
                running.setdefault(producer_id, []).append(offset)
            else:
                shown.add(offset)
        header = read_header(batch)
        batches.append(leader_stamp(header, offset, 0) + batch[16:])
        offset += header.last_offset_delta + 1
    for open_now in running.values():  # a log is read up to the first of them, here to the end
        shown.update(open_now)
    return History(batches, aborted, shown)


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([1, 1, 3, PLAIN, ABORT, COMMIT])), max_size=40
)


@given(STEPS, st.data())
def test_any_part_of_any_log(steps: list[Step], data: st.DataObject) -> None:
    """From any batch to any batch, with the aborted transactions that overlap it, and with some more behind it."""
    batches, aborted, shown = history_of(steps)
    begin = data.draw(st.integers(0, len(batches)))
    end = data.draw(st.integers(begin, len(batches)))
    part = batches[begin:end]
    start = read_header(part[0]).base_offset if part else 0
    stop = read_header(part[-1]).next_offset if part else 0
    beyond = data.draw(st.sampled_from([0, 3, 100]))
    named = [one[:2] for one in aborted if one[2] >= start and one[1] < stop + beyond]
    found = data_batches(memoryview(b"".join(part)), data.draw(st.permutations(named)))
    headers = [read_header(batch) for batch in part]
    assert [header.base_offset for _, header in found] == [
        header.base_offset
        for header in headers
        if header.base_offset in shown and not header.is_control
    ]


@given(STEPS)
def test_all_but_the_markers_without_a_list(steps: list[Step]) -> None:
    """As a reader of all records."""
    batches = history_of(steps).batches
    found = [header for _, header in data_batches(memoryview(b"".join(batches)))]
    assert found == [one for one in map(read_header, batches) if not one.is_control]


def test_a_transaction_that_begins_within_a_batch() -> None:
    """Compaction may leave a batch whose first offset is below that of its transaction: its last one counts."""
    (batch, marker), aborted, _ = history_of([(1, 3), (1, ABORT)])
    assert [*data_batches(memoryview(batch + marker), [(1, 2)])] == []
    assert aborted == [(1, 0, 3)]


def test_a_commit_ends_no_aborted_transaction() -> None:
    """Only an ABORT marker does: a COMMIT in between can be none of the transaction."""
    batches = history_of([(1, 1), (1, COMMIT), (1, 1), (1, ABORT), (1, 1)]).batches
    found = data_batches(memoryview(b"".join(batches)), [(1, 0)])
    assert [header.base_offset for _, header in found] == [4]


def test_a_marker_that_cannot_be_read() -> None:
    """It is an error if anything depends on it."""
    (batch, marker), _, _ = history_of([(1, 1), (1, ABORT)])
    broken = seal_batch(read_header(marker), b"\x02\x00")
    view = memoryview(batch + leader_stamp(read_header(broken), 1, 0) + broken[16:])
    assert [header.base_offset for _, header in data_batches(view)] == [0]
    with pytest.raises(DecodeError):
        list(data_batches(view, [(1, 0)]))
