"""The judgement of one producer, rule by rule, and against a model that remembers every record."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.pipeline.audit import sequence_history
from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.runs import SequenceRun
from echoless.pipeline.audit.sequence_history import ProducerHistory
from echoless.protocol.sequence import SEQUENCE_MAX, increment

DAY_MS = 86_400_000


def run(
    sequence: int, count: int, *, epoch: int = 0, offset: int = 0, timestamp: int = 0
) -> SequenceRun:
    """Some batches of one producer in one row."""
    return SequenceRun(
        replica="r",
        topic="orders",
        partition=0,
        producer_id=7,
        producer_epoch=epoch,
        file="f",
        position=offset,
        base_offset=offset,
        last_offset=offset + count - 1,
        base_sequence=sequence,
        last_sequence=increment(sequence, count - 1),
        sequences=count,
        batches=1,
        first_timestamp=timestamp,
        last_timestamp=timestamp,
    )


def judge(runs: Iterable[SequenceRun], *, log_begins_at_0: bool = True) -> list[Finding]:
    history = ProducerHistory(log_begins_at_0, DAY_MS)
    found = [finding for one in runs for finding in history.take(one)]
    return [*found, *history.finish()]


def brief(findings: list[Finding]) -> list[tuple[str, int | None, int | None]]:
    return [(f.kind, f.base_sequence, f.records) for f in findings]


def test_what_follows_is_sound():
    """Each run begins where the one before ended, over the end of the numbers too."""
    assert judge([run(0, 5), run(5, 1), run(6, 10)]) == []
    history = ProducerHistory(log_begins_at_0=False, expiration_ms=DAY_MS)
    wrapping = [run(SEQUENCE_MAX - 3, 4), run(0, 5), run(5, 1)]
    assert [f for one in wrapping for f in history.take(one)] == []
    assert list(history.finish()) == []


def test_a_hole_that_stays_is_a_gap():
    """Missing sequences are named once, with the offsets on both sides."""
    (gap,) = judge([run(0, 5), run(8, 2, offset=20)])
    assert (gap.kind, gap.base_sequence, gap.last_sequence, gap.records) == (
        FindingKind.GAP,
        5,
        7,
        3,
    )
    assert (gap.after_offset, gap.base_offset) == (4, 20)


def test_a_hole_that_is_filled_is_a_reordering():
    """Late is not lost; what is left of the hole is."""
    assert brief(judge([run(0, 5), run(8, 2), run(5, 3)])) == [(FindingKind.REORDERING, 5, 3)]
    assert brief(judge([run(0, 5), run(8, 2), run(6, 1)])) == [
        (FindingKind.REORDERING, 6, 1),
        (FindingKind.GAP, 5, 1),
        (FindingKind.GAP, 7, 1),
    ]


def test_what_is_stored_again_is_a_repeat():
    """It holds if only part of the run is, and if it fills a hole besides."""
    assert brief(judge([run(0, 5), run(2, 2), run(5, 1)])) == [(FindingKind.REPEAT, 2, 2)]
    assert brief(judge([run(0, 5), run(3, 4), run(7, 1)])) == [(FindingKind.REPEAT, 3, 2)]
    assert brief(judge([run(0, 2), run(4, 2), run(0, 6)])) == [
        (FindingKind.REPEAT, 0, 2),
        (FindingKind.REORDERING, 2, 2),
        (FindingKind.REPEAT, 4, 2),
    ]


def test_sequences_are_compared_over_the_wrap():
    """A gap, a repeat and a reordering at 2**31 are those that they are elsewhere."""
    near_end = run(SEQUENCE_MAX - 1, 2)
    assert brief(judge([near_end, run(3, 1)], log_begins_at_0=False)) == [(FindingKind.GAP, 0, 3)]
    assert brief(judge([near_end, run(0, 3), run(SEQUENCE_MAX, 3)], log_begins_at_0=False)) == [
        (FindingKind.REPEAT, SEQUENCE_MAX, 3)
    ]
    late = [run(SEQUENCE_MAX - 1, 1), run(0, 1), run(SEQUENCE_MAX, 1)]
    assert brief(judge(late, log_begins_at_0=False)) == [(FindingKind.REORDERING, SEQUENCE_MAX, 1)]


def test_an_older_epoch_is_a_regression_and_its_sequences_are_its_own():
    """The late batch continues its epoch, so nothing is missing."""
    runs = [run(0, 5), run(0, 3, epoch=1), run(5, 2), run(3, 1, epoch=1)]
    assert brief(judge(runs)) == [(FindingKind.EPOCH_REGRESSION, 5, 2)]


def test_an_epoch_begins_at_0():
    """Unless its beginning may have been deleted from the log."""
    assert brief(judge([run(3, 1)])) == [(FindingKind.GAP, 0, 3)]
    assert judge([run(3, 1)], log_begins_at_0=False) == []
    newer = [run(3, 1), run(2, 1, epoch=1)]
    assert brief(judge(newer, log_begins_at_0=False)) == [(FindingKind.GAP, 0, 2)]
    before = [run(3, 1), run(1, 1)]
    assert brief(judge(before, log_begins_at_0=False)) == [(FindingKind.REORDERING, 1, 1)]


def test_a_forgotten_producer_may_begin_anew():
    """After the expiration a sequence 0 is no repeat; before it, it is."""
    (note,) = judge([run(0, 5), run(0, 5, timestamp=DAY_MS)])
    assert (note.kind, note.severity) == (FindingKind.FORGOTTEN, Severity.NOTE)
    assert brief(judge([run(0, 5), run(0, 5, timestamp=DAY_MS - 1)])) == [
        (FindingKind.REPEAT, 0, 5)
    ]


def test_open_holes_are_bounded(monkeypatch):
    """The oldest is reported as it is when there are too many."""
    monkeypatch.setattr(sequence_history, "HOLES_MAX", 2)
    history = ProducerHistory(log_begins_at_0=True, expiration_ms=DAY_MS)
    found = [f for start in (0, 2, 4, 6) for f in history.take(run(start, 1))]
    assert brief(found) == [(FindingKind.GAP, 1, 1)]
    assert brief(list(history.finish())) == [(FindingKind.GAP, 3, 1), (FindingKind.GAP, 5, 1)]


@pytest.mark.parametrize("start", [0, SEQUENCE_MAX - 15])
@given(
    runs=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=12),
)
def test_it_agrees_with_a_model_that_remembers_everything(start: int, runs: list[tuple[int, int]]):
    """Any runs at all: the records that are missing, late and repeated are the model's, exactly."""
    stored = dict.fromkeys(range(1), 1)
    highest, late, repeated = 0, [], []
    for first, count in runs:
        for place in range(first, first + count):
            if place in stored:
                repeated.append(place)
            elif place < highest:
                late.append(place)
            stored[place] = 1
        highest = max(highest, first + count - 1)
    missing = [place for place in range(highest) if place not in stored]
    taken = [run(increment(start, first), count) for first, count in [(0, 1), *runs]]
    found = judge(taken, log_begins_at_0=start == 0)
    for kind, expected in (
        (FindingKind.GAP, missing),
        (FindingKind.REORDERING, late),
        (FindingKind.REPEAT, repeated),
    ):
        records = [
            (f.base_sequence - start + index) & SEQUENCE_MAX
            for f in found
            if f.kind == kind
            for index in range(f.records)
        ]
        assert sorted(records) == sorted(expected), kind
