"""Open transactions and the last stable offset, against a naive model that reads the whole log each time."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.control_records import EndMarker, MarkerType
from echoless.protocol.producer_effect import effect_of
from echoless.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from echoless.storage.producers.open_transactions import ClosedTransaction, OpenTransactions
from tests.protocol.sample_batches import header

MARKER: Final = EndMarker(MarkerType.ABORT, 0)


class LoggedBatch(NamedTuple):
    """A batch in the naive model's log."""

    header: BatchHeader
    marker: EndMarker | None


def data(producer_id: int, count: int = 1, *, has_sequence: bool = True) -> LoggedBatch:
    """A batch of a transaction."""
    sequence = 0 if has_sequence else -1
    batch = header(sequence, count, attributes=TRANSACTIONAL_BIT)
    return LoggedBatch(batch._replace(producer_id=producer_id), None)


def plain(producer_id: int, count: int = 1) -> LoggedBatch:
    """A batch outside any transaction."""
    return LoggedBatch(header(0, count)._replace(producer_id=producer_id), None)


def end(producer_id: int, marker: EndMarker | None = MARKER) -> LoggedBatch:
    """A marker; without one an emptied control batch."""
    batch = header(-1, attributes=TRANSACTIONAL_BIT | CONTROL_BIT)
    return LoggedBatch(batch._replace(producer_id=producer_id), marker)


class Partition:
    """A log and its open transactions."""

    def __init__(self) -> None:
        self.log: list[LoggedBatch] = []
        self.end_offset = 0
        self.open = OpenTransactions()

    def store(self, batch: LoggedBatch) -> ClosedTransaction | None:
        base_offset, self.end_offset = self.end_offset, self.end_offset + batch.header.record_count
        self.log.append(LoggedBatch(batch.header._replace(base_offset=base_offset), batch.marker))
        effect = effect_of(batch.header, batch.marker)
        return self.open.note(batch.header, base_offset, effect)


def transactions_of(log: list[LoggedBatch]) -> list[tuple[int, int, int | None]]:
    """Producer id, first offset and marker's offset of every transaction in the log."""
    found: list[tuple[int, int, int | None]] = []
    for one, marker in log:
        producer_id = one.producer_id
        place = next((i for i, t in enumerate(found) if t[0] == producer_id and t[2] is None), None)
        if one.is_control:
            if marker is not None and place is not None:
                found[place] = (producer_id, found[place][1], one.last_offset)
        elif one.is_transactional and producer_id >= 0 and place is None:
            found.append((producer_id, one.base_offset, None))
    return found


def stable_of(log: list[LoggedBatch], high_watermark: int, log_start: int = 0) -> int:
    """The last stable offset by its definition."""
    unstable = [
        first for _, first, last in transactions_of(log) if last is None or last >= high_watermark
    ]
    return max(min([high_watermark, *unstable]), min(log_start, high_watermark))


PRODUCERS: Final = st.integers(-1, 4)
STEPS: Final = st.one_of(
    st.builds(data, PRODUCERS, st.integers(1, 3), has_sequence=st.booleans()),
    st.builds(plain, PRODUCERS, st.integers(1, 3)),
    st.builds(end, PRODUCERS, st.sampled_from([MARKER, MARKER, MARKER, None])),
    st.floats(0, 1),
)
"""A batch, or by how much of the way to the end the high watermark rises."""


@given(st.lists(STEPS, max_size=60), st.integers(0, 20))
def test_agrees_with_the_naive_model(steps: list[LoggedBatch | float], log_start: int) -> None:
    """After each step the open ones, what a marker ended, and the last stable offset are the log's."""
    one, high_watermark, stable = Partition(), 0, 0
    for step in steps:
        if isinstance(step, float):
            high_watermark += int((one.end_offset - high_watermark) * step)
        else:
            before = transactions_of(one.log)
            ended = one.store(step)
            newly = [t for t in transactions_of(one.log) if t not in before and t[2] is not None]
            assert newly == ([] if ended is None else [ended[:3]])
            if ended is not None:
                others = [t[1] for t in transactions_of(one.log) if t[2] is None]
                assert ended.last_stable_offset == min([ended.last_offset + 1, *others])
        found = transactions_of(one.log)
        assert [*one.open.items()] == [(t[0], t[1]) for t in found if t[2] is None]
        assert len(one.open) == len([*one.open.items()])
        now = one.open.last_stable_offset(high_watermark)
        assert now == stable_of(one.log, high_watermark)
        assert stable <= now <= high_watermark
        stable = now
        expected = stable_of(one.log, high_watermark, log_start)
        assert one.open.last_stable_offset(high_watermark, log_start) == expected


@given(st.lists(STEPS, max_size=60), st.randoms(use_true_random=False))
def test_what_is_loaded_goes_on_alike(steps: list[LoggedBatch | float], rng: random.Random) -> None:
    """Loaded from the open ones in any order, it says the same once the high watermark is at the end."""
    one = Partition()
    for step in steps:
        if not isinstance(step, float):
            one.store(step)
    items = [*one.open.items()]
    rng.shuffle(items)
    loaded = OpenTransactions()
    loaded.load(items)
    assert [*loaded.items()] == [*one.open.items()]
    assert loaded.oldest() == one.open.oldest()
    wanted = one.open.last_stable_offset(one.end_offset)
    assert loaded.last_stable_offset(one.end_offset) == wanted


def test_a_marker_above_the_high_watermark_holds_readers_back() -> None:
    """A transaction that has ended is stable only when its marker and every older transaction are."""
    one = Partition()
    one.store(plain(9, 10))
    one.store(data(1, 2))
    one.store(data(2, 3))
    assert one.store(end(2)) == ClosedTransaction(2, 12, 15, 10)
    assert one.open.last_stable_offset(16) == 10
    assert one.store(end(1)) == ClosedTransaction(1, 10, 16, 17)
    assert one.open.last_stable_offset(16) == 10
    assert one.open.last_stable_offset(17) == 17


def test_a_commit_aborts_nothing() -> None:
    """It ends the transaction, and there is no range to skip."""
    one = Partition()
    one.store(data(1))
    assert one.store(end(1, EndMarker(MarkerType.COMMIT, 0))) is None
    assert one.open.last_stable_offset(2) == 2


def test_a_deleted_beginning_holds_readers_back_at_the_log_start() -> None:
    """Retention ignores transactions."""
    one = Partition()
    one.store(plain(9, 10))
    one.store(data(1, 8))
    assert one.open.first_offsets[1] == 10
    assert one.open.last_stable_offset(18, 14) == 14
    assert 1 in one.open
    assert 2 not in one.open


def test_offsets_within_a_transaction_open_it() -> None:
    """A batch without a sequence holds readers back like any other of a transaction."""
    one = Partition()
    one.store(data(1, has_sequence=False))
    assert one.open.oldest() == (1, 0)
    assert one.open.last_stable_offset(1) == 0


def test_many_transactions_cost_the_same_each() -> None:
    """Ended ones are dropped as the high watermark passes them, whatever the oldest does."""
    one = Partition()
    one.store(data(0))
    for _ in range(20_000):
        one.store(data(1))
        one.store(end(1))
        assert one.open.last_stable_offset(one.end_offset) == 0
    assert not one.open._ended
    one.store(end(0))
    assert one.open.last_stable_offset(one.end_offset) == one.end_offset
