"""Random histories against the naive model: what a table of the log holds (C1), and every decision (C2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import Codec, read_header
from echoless.storage.appended import Appended
from echoless.storage.compaction.merging import SOURCES_MAX, may_join
from echoless.storage.compaction.plan import SegmentFacts, cleanable, plan
from echoless.storage.log import Log
from tests.storage.compaction.keyed_log import (
    CONFIG,
    RULES,
    Pair,
    append,
    batches_of,
    clean,
    compacted_view,
    keyed_batch,
    records_in,
)
from tests.storage.log_workload import facts_of_entries
from tests.storage.one_log import NOW_MS, OneLog

RETENTION_MS = 1000
Decision = Appended | Duplicate | Reject

values = st.one_of(st.none(), st.binary(max_size=20))
keys = st.sampled_from([b"a", b"b", b"c", b"d" * 20, b"e" * 21])
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
producers = st.integers(-1, 3)


@dataclass(frozen=True)
class Produce:
    """A batch: the next of its producer, or (`back` > 0) a repeat, or a gap."""

    producer_id: int
    pairs: list[Pair]
    back: int
    codec: Codec


@dataclass(frozen=True)
class Clean:
    """A pass, with room for so many keys, up to a limit this far below the end."""

    keys_max: int
    below_end: int
    after_ms: int


@dataclass(frozen=True)
class Reopen:
    """A clean restart, or a kill."""

    is_clean: bool


produces = st.builds(
    Produce,
    producers,
    pairs,
    st.sampled_from([0, 0, 0, 0, 1, 2, 3, -1]),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP]),
)
cleans = st.builds(
    Clean,
    st.sampled_from([1, 3, 1000]),
    st.sampled_from([0, 0, 0, 1, 4]),
    st.sampled_from([0, 500, 1500]),
)
steps = st.lists(
    st.one_of(produces, produces, produces, cleans, st.builds(Reopen, st.booleans())), min_size=6
)


@dataclass
class History:
    """Two logs with the same batches, one of them cleaned now and then."""

    cleaned: OneLog = field(default_factory=lambda: OneLog(CONFIG))
    plain: OneLog = field(default_factory=lambda: OneLog(replace(CONFIG, is_compacted=False)))
    sent: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    now_ms: int = NOW_MS

    def next_sequence(self, producer_id: int) -> int:
        sent = self.sent.get(producer_id)
        if not sent:
            return 0
        sequence, batch = sent[-1]
        return sequence + read_header(batch).record_count

    def produce(self, step: Produce) -> None:
        sent = self.sent.setdefault(step.producer_id, [])
        if step.producer_id >= 0 and 0 < step.back <= len(sent):
            batch = sent[-step.back][1]
        else:
            sequence = self.next_sequence(step.producer_id) + (7 if step.back < 0 else 0)
            batch = keyed_batch(
                step.pairs,
                producer_id=step.producer_id,
                sequence=sequence,
                codec=step.codec,
                timestamp=self.now_ms,
            )
        with_cleaning, without = (
            append(one.log, batch, now_ms=self.now_ms) for one in (self.cleaned, self.plain)
        )
        assert judged(with_cleaning) == judged(without)
        if isinstance(without, Appended):
            sent.append((read_header(batch).base_sequence, batch))

    def clean(self, step: Clean) -> None:
        self.now_ms += step.after_ms
        log = self.cleaned.log
        clean(
            log,
            limit=max(log.log_end_offset - step.below_end, 0),
            now_ms=self.now_ms,
            steady_ms=self.now_ms,
            map_bytes_max=192 * step.keys_max,
        )

    def reopen(self, step: Reopen) -> None:
        for one in (self.cleaned, self.plain):
            if step.is_clean:
                one.close_and_open()
            else:
                one.open(recovery_point=one.log.recovery_point)

    def check_table(self) -> None:
        """Checks what both logs mean, and what they know of their producers."""
        before, after = records_in(self.plain.log), records_in(self.cleaned.log)
        assert compacted_view(after) == compacted_view(before)
        assert all(record in before for record in after)
        assert self.cleaned.log.log_end_offset == self.plain.log.log_end_offset
        assert facts(self.cleaned.log) == facts(self.plain.log)

    def check(self) -> None:
        """Checks what a fresh replica of the cleaned log answers to every batch that was ever sent."""
        replica = OneLog(CONFIG)
        for _, batch in batches_of(self.cleaned.log):
            replica.log.append_replicated(batch, self.now_ms)
        self.check_repeats(replica.log)

    def check_repeats(self, replica: Log) -> None:
        for sent in self.sent.values():
            for _, batch in sent:
                header = read_header(batch)
                if header.producer_id < 0:
                    continue
                theirs, ours = (append(log, batch) for log in (replica, self.plain.log))
                if judged(ours) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER,):
                    # Older than every window: a replica that never saw it cannot prove it.
                    assert isinstance(theirs, Reject)
                else:
                    assert judged(theirs) == judged(ours)


def facts(log: Log) -> dict[int, tuple[int, int, list[tuple[int, int]]]]:
    """The producers of a log, without what compaction may change of a batch: CRC and newest time."""
    return {
        producer_id: (epoch, run_start, [(b.last_sequence, b.last_offset) for b in window])  # type: ignore[attr-defined]
        for producer_id, (epoch, run_start, window) in facts_of_entries(
            log.producers.items()
        ).items()
    }


def judged(decision: Decision) -> tuple[object, ...]:
    """The answer, as the client sees it."""
    match decision:
        case Appended():
            return ("append", decision.base_offset)
        case Duplicate():
            return ("duplicate", decision.original.base_offset, decision.divergent)
        case Reject():
            return (decision.code,)


@pytest.mark.slow
@given(steps)
@settings(deadline=None)
def test_cleaning_changes_neither_the_table_nor_any_decision(history: list[object]) -> None:
    """The same batches to two logs: the cleaned one answers and means the same at every moment."""
    both = History()
    for step in history:
        match step:
            case Produce():
                both.produce(step)
            case Clean():
                both.clean(step)
            case Reopen():
                both.reopen(step)
        both.check_table()
    both.clean(Clean(keys_max=1000, below_end=0, after_ms=0))
    both.check_table()
    both.check()


segments = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 900), st.integers(0, 1000)), max_size=12
)


def facts_of_segments(drawn: list[tuple[int, int, int]]) -> list[SegmentFacts]:
    found, base = [], 0
    for length, size, time_ms in drawn:
        found.append(SegmentFacts(base, base + length, size, time_ms, time_ms + 5))
        base += length
    return found


@given(segments, st.integers(0, 700), st.integers(0, 1500), st.integers(0, 900))
def test_a_plan_stays_below_every_bound(
    drawn: list[tuple[int, int, int]], limit: int, now_ms: int, lag_ms: int
) -> None:
    """Only a prefix of the closed segments is cleaned, each of it committed and old enough."""
    facts_ = facts_of_segments(drawn)
    rules = RULES._replace(min_lag_ms=lag_ms)
    found = cleanable(facts_, limit, rules, now_ms)
    assert found == facts_[: len(found)]
    assert all(one.next_offset <= limit for one in found)
    assert not lag_ms or all(one.newest_ms <= now_ms - lag_ms for one in found)
    pass_ = plan(found, 0, rules, now_ms)
    assert (pass_ is None) == (not found)
    if pass_ is not None:
        assert pass_.end_offset == found[-1].next_offset
        assert pass_.clean_bytes + pass_.dirty_bytes == sum(one.size for one in found)


@given(segments, st.integers(8, 2000), st.floats(0, 1))
def test_what_is_left_of_neighbours_decides_whether_they_are_merged(
    drawn: list[tuple[int, int, int]], bytes_max: int, left: float
) -> None:
    """No merged segment outgrows its bound by more than an eighth, and nothing that fits stays alone."""
    facts_ = facts_of_segments(drawn)
    group: list[SegmentFacts] = []
    written = 0
    for one in facts_:
        if group and may_join(group, written, one, bytes_max):
            assert written + one.size <= bytes_max or written <= bytes_max // 8
        elif group:
            assert written + one.size > bytes_max
            group, written = [], 0
        group.append(one)
        written += int(one.size * left)


def test_groups_end_where_offsets_or_positions_are_out_of_reach() -> None:
    """Index entries hold 31 bits, and one swap a bounded number of files."""
    first = SegmentFacts(0, 10, 100, 0, 0)
    for second, written, fits in (
        (SegmentFacts(10, 2**31, 100, 0, 0), 61, True),
        (SegmentFacts(10, 2**31 + 1, 100, 0, 0), 61, False),
        (SegmentFacts(10, 20, 2**31 - 62, 0, 0), 61, True),
        (SegmentFacts(10, 20, 2**31 - 61, 0, 0), 61, False),
    ):
        assert may_join([first], written, second, 2**31 - 1) == fits
    assert may_join([first] * (SOURCES_MAX - 1), 61, first, 1000)
    assert not may_join([first] * SOURCES_MAX, 61, first, 1000)


def test_a_log_is_cleaned_by_ratio_or_by_age() -> None:
    """`min.cleanable.dirty.ratio` is exceeded, or the oldest dirty record has waited for too long."""
    facts_ = facts_of_segments([(10, 100, 0), (10, 100, 500)])
    half = RULES._replace(min_dirty_ratio=0.5)
    due = plan(facts_, 10, half, now_ms=1000)
    assert due is not None
    assert (due.dirty_ratio, due.is_due) == (0.5, False)
    late = plan(facts_, 10, half._replace(max_lag_ms=499), now_ms=1000)
    assert late is not None
    assert late.is_due
    assert plan(facts_, 20, half, now_ms=1000) is None
    again = plan(facts_, 20, half, now_ms=1000, horizon_ms=1000)
    assert again is not None
    assert again.is_due
