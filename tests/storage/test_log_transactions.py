"""Transactions of a log: however it comes to its state, the state is that of its batches.

Random histories of plain and transactional batches, commits of offsets without a sequence, and markers; the log is rolled,
flushed, killed, closed, cut, opened with an older producer snapshot, copied by a follower, and begun anew from a snapshot. After each step the open transactions, the
last stable offset, the aborted ranges and the last markers equal those of a naive scan of the batches.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker, read_marker
from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    seal_batch,
    walk,
)
from echoless.storage import segment_indexes
from echoless.storage.append_origin import AppendOrigin
from echoless.storage.appended import Appended
from echoless.storage.file_system import FileSystem
from echoless.storage.log_config import LogConfig
from echoless.storage.producers.snapshot import decode_snapshot, encode_snapshot
from echoless.storage.transaction_index import TransactionIndex
from tests.storage.log_workload import facts_of_entries, make_batch, read_all
from tests.storage.one_log import DIRECTORY, NOW_MS, OneLog

PRODUCERS: Final = 3
COORDINATOR: Final = AppendOrigin.COORDINATOR


def transactional(batch: bytes) -> bytes:
    header = read_header(batch)
    return seal_batch(header._replace(attributes=header.attributes | TRANSACTIONAL_BIT), batch[61:])


class LoggedBatch(NamedTuple):
    header: BatchHeader
    marker: EndMarker | None


class NaiveTransaction(NamedTuple):
    producer_id: int
    first: int
    marker: int | None
    type: MarkerType | None


def scan(data: bytes) -> list[NaiveTransaction]:
    """Every transaction, by its definition."""
    found: list[NaiveTransaction] = []
    for position, header in walk(data):
        place = next(
            (
                i
                for i, one in enumerate(found)
                if one.producer_id == header.producer_id and one.marker is None
            ),
            None,
        )
        if header.is_control:
            marker = read_marker(data[position : position + header.size])
            if place is not None and marker is not None:
                found[place] = found[place]._replace(marker=header.last_offset, type=marker.type)
        elif header.is_transactional and place is None:
            found.append(NaiveTransaction(header.producer_id, header.base_offset, None, None))
    return found


def last_markers(data: bytes) -> dict[int, tuple[MarkerType, int, int, int]]:
    found: dict[int, tuple[MarkerType, int, int, int]] = {}
    for position, header in walk(data):
        if not header.is_control:
            continue
        marker = read_marker(data[position : position + header.size])
        assert marker is not None
        found[header.producer_id] = (
            marker.type,
            marker.coordinator_epoch,
            marker.number,
            header.last_offset,
        )
    return found


class Transactions:
    """A log and the next sequence of each producer."""

    def __init__(self) -> None:
        self.one = OneLog(LogConfig(segment_bytes=900, index_interval_bytes=200, retention_ms=-1))
        self.sequences = dict.fromkeys(range(PRODUCERS), 0)
        self.numbers = dict.fromkeys(range(PRODUCERS), 0)
        self.epochs = dict.fromkeys(range(PRODUCERS), 0)

    def write(self, producer_id: int, count: int) -> None:
        """A batch in a transaction, begun by it if necessary."""
        batch = make_batch(
            producer_id=producer_id,
            epoch=self.epochs[producer_id],
            sequence=self.sequences[producer_id],
            count=count,
        )
        self.sequences[producer_id] += count
        batch = transactional(batch)
        answer = self.one.log.append(batch, read_header(batch), 0, NOW_MS)
        assert isinstance(answer, Appended), answer

    def write_offsets(self, producer_id: int) -> None:
        """As the coordinator of groups within a transaction."""
        batch = transactional(
            make_batch(producer_id=producer_id, epoch=self.epochs[producer_id], sequence=-1)
        )
        answer = self.one.log.append(batch, read_header(batch), 0, NOW_MS, origin=COORDINATOR)
        assert isinstance(answer, Appended), answer

    def end(self, producer_id: int, kind: MarkerType) -> None:
        self.numbers[producer_id] += 1
        marker = EndMarker(kind, 0, self.numbers[producer_id])
        assert isinstance(self.mark(producer_id, marker, self.epochs[producer_id]), Appended)

    def fence(self, producer_id: int) -> None:
        """As a coordinator that aborts the transaction of an instance which another one replaces."""
        self.epochs[producer_id] += 1
        self.sequences[producer_id] = 0
        self.end(producer_id, MarkerType.ABORT)

    def mark(self, producer_id: int, marker: EndMarker, epoch: int = 0) -> object:
        batch = build_marker(marker, producer_id, epoch, NOW_MS)
        return self.one.log.append(batch, read_header(batch), 0, NOW_MS, origin=COORDINATOR)

    def write_plain(self, producer_id: int) -> None:
        """Outside a transaction; refused within one."""
        batch = make_batch(
            producer_id=producer_id,
            epoch=self.epochs[producer_id],
            sequence=self.sequences[producer_id],
            count=1,
        )
        is_open = self.one.log.producers.open_transaction(producer_id) is not None
        answer = self.one.log.append(batch, read_header(batch), 0, NOW_MS)
        if is_open:
            assert isinstance(answer, Reject)
            assert answer.code is ErrorCode.INVALID_TXN_STATE
            return
        assert isinstance(answer, Appended), answer
        self.sequences[producer_id] += 1

    def check(self, one: OneLog | None = None, committed: float = 1.0) -> None:
        log = (one or self.one).log
        data = read_all(log)
        found = scan(data)
        producers = log.producers
        opened = producers.open_transactions
        expected = [(one.producer_id, one.first) for one in found if one.marker is None]
        assert ([] if opened is None else list(opened.items())) == expected
        for producer_id in range(PRODUCERS):
            last = producers.last_marker(producer_id)
            assert (None if last is None else last[:4]) == last_markers(data).get(producer_id)
        high_watermark = round(log.log_end_offset * committed)
        unstable = [
            one.first for one in found if one.marker is None or one.marker >= high_watermark
        ]
        assert log.last_stable_offset(high_watermark) == min([high_watermark, *unstable])
        for start in range(0, log.log_end_offset, 3):
            for end in range(start + 1, log.log_end_offset + 1, 4):
                expected_ranges = sorted(
                    (one.marker, one.first)
                    for one in found
                    if one.type is MarkerType.ABORT
                    and one.marker is not None
                    and one.marker >= start
                    and one.first < end
                )
                ranges = log.aborted_transactions(start, end)
                assert [(r.last_offset, r.first_offset) for r in ranges] == expected_ranges

    def copied(self) -> OneLog:
        """A follower's log, fetched in pieces."""
        follower = OneLog(self.one.config)
        data, position = read_all(self.one.log), 0
        sizes = [header.size for _, header in walk(data)]
        for size in sizes:
            follower.log.append_replicated(data[position : position + size], NOW_MS)
            position += size
        return follower


STEPS: Final = st.one_of(
    st.tuples(st.just("write"), st.integers(0, PRODUCERS - 1), st.integers(1, 3)),
    st.tuples(st.just("offsets"), st.integers(0, PRODUCERS - 1), st.just(0)),
    st.tuples(st.just("plain"), st.integers(0, PRODUCERS - 1), st.just(0)),
    st.tuples(st.just("commit"), st.integers(0, PRODUCERS - 1), st.just(0)),
    st.tuples(st.just("abort"), st.integers(0, PRODUCERS - 1), st.just(0)),
    st.tuples(st.just("fence"), st.integers(0, PRODUCERS - 1), st.just(0)),
    st.tuples(st.sampled_from(["roll", "flush", "kill", "close", "follow", "cut", "old snapshot"]), st.just(0), st.integers(0, 6)),
)  # fmt: skip


def play(history: Transactions, step: tuple[str, int, int]) -> None:  # noqa: C901, PLR0912 - one case for each kind
    kind, producer_id, number = step
    log = history.one.log
    match kind:
        case "write":
            history.write(producer_id, number)
        case "offsets":
            history.write_offsets(producer_id)
        case "plain":
            history.write_plain(producer_id)
        case "commit":
            history.end(producer_id, MarkerType.COMMIT)
        case "abort":
            history.end(producer_id, MarkerType.ABORT)
        case "fence":
            history.fence(producer_id)
        case "old snapshot":
            log.flush()
            for name in history.one.files(".snapshot")[-number:] if number else []:
                history.one.fs.remove(f"{DIRECTORY}/{name}")
            history.one.open(recovery_point=log.recovery_point)
        case "roll":
            log.roll(NOW_MS)
        case "flush":
            log.flush()
        case "kill":
            history.one.open(recovery_point=log.recovery_point)
        case "close":
            history.one.close_and_open()
        case "follow":
            history.check(history.copied())
        case "cut":
            log.truncate_to(max(0, log.log_end_offset - number))
            forget(history)


def forget(history: Transactions) -> None:
    """After a cut the producers go on from what is left."""
    for producer_id in range(PRODUCERS):
        entry = history.one.log.producers.get(producer_id)
        history.sequences[producer_id] = 0 if entry is None else entry.last_sequence + 1
        history.epochs[producer_id] = 0 if entry is None else entry.producer_epoch
        last = history.one.log.producers.last_marker(producer_id)
        history.numbers[producer_id] = 0 if last is None else max(last.number, 0)


@given(st.lists(STEPS, max_size=40))
def test_the_state_is_that_of_the_batches(steps: list[tuple[str, int, int]]) -> None:
    """Whatever happens to the log in between."""
    history = Transactions()
    for step in steps:
        play(history, step)
    history.check(committed=0.7)
    history.check()
    history.one.open(recovery_point=history.one.log.recovery_point)
    history.check()
    history.one.close_and_open()
    history.check()
    follower = history.copied()
    history.check(follower)
    assert facts_of_entries(follower.log.producers.items()) == facts_of_entries(
        history.one.log.producers.items()
    )


@given(st.lists(STEPS, max_size=30), st.floats(0, 1))
def test_a_snapshot_has_what_holds_readers_back(
    steps: list[tuple[str, int, int]], committed: float
) -> None:
    """Transactions that ended above the high watermark of its time are in it, too."""
    history = Transactions()
    for step in steps:
        play(history, step)
    log = history.one.log
    high_watermark = round(log.log_end_offset * committed)
    before = log.last_stable_offset(high_watermark)
    replica = OneLog(history.one.config)
    data = encode_snapshot(log.log_end_offset, log.producers.freeze())
    replica.log.reset_to(log.log_end_offset, data, clock_ahead_ms=0, now_ms=NOW_MS)
    assert encode_snapshot(log.log_end_offset, replica.log.producers) == data
    opened = replica.log.producers.open_transactions
    stable = high_watermark if opened is None else opened.last_stable_offset(high_watermark)
    assert stable == before


def test_a_log_without_transactions_writes_version_1() -> None:
    """A broker that knows no transactions reads it."""
    one = OneLog()
    one.append(producer_id=1)
    assert b"\xa7version\x01" in encode_snapshot(1, one.log.producers)
    history = Transactions()
    history.write(1, 1)
    data = encode_snapshot(1, history.one.log.producers)
    assert b"\xa7version\x02" in data
    assert decode_snapshot(data).transactions.open == ((1, 0),)


@pytest.mark.parametrize("is_leased", [False, True])
def test_an_open_transaction_keeps_its_producer(is_leased: bool) -> None:
    """Neither time nor the bound forgets it; after the marker both may."""
    producer_id = (1 << 52) + 3 if is_leased else 1
    config = LogConfig(
        segment_bytes=900, producers_max=2, producer_id_expiration_ms=10, retention_ms=-1,
        leased_producer_expiration_ms=10,
    )  # fmt: skip
    one = OneLog(config)
    batch = transactional(make_batch(producer_id=producer_id, epoch=0, sequence=0))
    one.log.append(batch, read_header(batch), 0, NOW_MS)
    for other in range(10, 20):
        one.append(producer_id=other)
    assert one.log.expire_producers(NOW_MS + 1000) == 2
    assert [found for found, _ in one.log.producers.items()] == [producer_id]
    assert one.log.producers.next_expiry_ms is None
    marker = build_marker(EndMarker(MarkerType.COMMIT, 0), producer_id, 0, NOW_MS)
    one.log.append(marker, read_header(marker), 0, NOW_MS, origin=COORDINATOR)
    assert one.log.producers.next_expiry_ms == NOW_MS + 10
    assert one.log.expire_producers(NOW_MS + 1000) == 1


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """Its number has ended before: it is answered with the offset of the marker that ended it, and not stored."""
    history = Transactions()
    history.write(1, 1)
    history.end(1, MarkerType.COMMIT)
    history.write(1, 1)
    late = history.mark(1, EndMarker(MarkerType.COMMIT, 0, 1))
    assert isinstance(late, Duplicate)
    assert late.original.last_offset == 1
    assert history.one.log.producers.open_transaction(1) == 2
    contradiction = history.mark(1, EndMarker(MarkerType.ABORT, 0, 1))
    assert isinstance(contradiction, Reject)
    assert contradiction.code is ErrorCode.INVALID_TXN_STATE
    history.one.close_and_open()
    assert isinstance(history.mark(1, EndMarker(MarkerType.COMMIT, 0, 1)), Duplicate)
    assert isinstance(history.mark(1, EndMarker(MarkerType.COMMIT, 0, 2)), Appended)


def test_older_coordinators_and_epochs_are_fenced() -> None:
    """A marker of an older coordinator gets 52, of an older producer epoch 47; a tool's marker needs no number."""
    history = Transactions()
    history.write(1, 1)
    assert isinstance(history.mark(1, EndMarker(MarkerType.ABORT, 5)), Appended)
    history.write(1, 1)
    fenced = history.mark(1, EndMarker(MarkerType.ABORT, 4))
    assert isinstance(fenced, Reject)
    assert fenced.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert isinstance(history.mark(1, EndMarker(MarkerType.ABORT, 5), epoch=3), Appended)
    stale = history.mark(1, EndMarker(MarkerType.ABORT, 9, 7), epoch=2)
    assert isinstance(stale, Reject)
    assert stale.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_aborted_transactions_survive_a_kill_right_after_a_roll() -> None:
    """The recovery point is at the end of a segment whose index was never written."""
    history = Transactions()
    history.write(1, 1)
    history.end(1, MarkerType.ABORT)
    history.one.log.flush()
    history.one.log.roll(NOW_MS)
    assert history.one.files(".txnindex") == []
    history.one.open(recovery_point=2)
    history.check()
    history.one.log.flush()
    assert history.one.files(".txnindex") == ["00000000000000000000.txnindex"]


def test_index_files_of_an_earlier_stop_hide_no_abort() -> None:
    """The segment had files from a clean stop, and was appended to, flushed and closed since."""
    history = Transactions()
    history.write(1, 20)
    history.write(1, 1)
    history.one.close_and_open()
    assert history.one.files(".index")
    history.end(1, MarkerType.ABORT)
    history.one.log.flush()
    history.one.log.roll(NOW_MS)
    history.one.open(recovery_point=history.one.log.recovery_point)
    history.check()


def test_what_the_file_knows_is_kept_where_the_snapshot_is_lost() -> None:
    """Without a producer state no one knows where the transaction began."""
    history = Transactions()
    history.write(1, 1)
    history.one.log.roll(NOW_MS)
    history.end(1, MarkerType.ABORT)
    history.one.log.advance_log_start(1)
    history.one.log.flush()
    history.one.log.delete_old_segments(NOW_MS)
    history.one.close_and_open()
    before = history.one.log.aborted_transactions(1, 2)
    assert [one.first_offset for one in before] == [0]
    if history.one.log.first_offset:
        for name in history.one.files(".snapshot"):
            history.one.fs.remove(f"{DIRECTORY}/{name}")
        history.one.open(recovery_point=1, log_start_offset=1)
    assert history.one.log.aborted_transactions(1, 2) == before


def test_random_long_histories() -> None:
    """Long enough that indexes and snapshots of many segments matter."""
    for seed in range(6):
        rng, history = random.Random(seed), Transactions()
        for _ in range(200):
            kind = rng.choice(["write"] * 6 + ["offsets", "plain", "commit", "abort", "abort", "fence", "roll", "flush", "kill", "close", "cut", "old snapshot"])  # fmt: skip
            play(history, (kind, rng.randrange(PRODUCERS), rng.randint(1, 3)))
        history.check(committed=rng.random())
        history.check(history.copied())


def test_a_marker_of_a_tool_leaves_the_number() -> None:
    """A late copy of the coordinator's own marker is still known."""
    history = Transactions()
    history.write(1, 1)
    history.end(1, MarkerType.COMMIT)
    history.write(1, 1)
    assert isinstance(history.mark(1, EndMarker(MarkerType.ABORT, 0)), Appended)
    history.write(1, 1)
    assert isinstance(history.mark(1, EndMarker(MarkerType.COMMIT, 0, 1)), Duplicate)


def test_a_producer_in_a_transaction_does_not_count_for_its_owner() -> None:
    """A bound that takes from the owner with most producers counts those alone that can go."""
    one = OneLog(
        LogConfig(segment_bytes=900, producers_max=2, producers_fair=True, retention_ms=-1)
    )
    one.append(producer_id=1)
    batch = transactional(make_batch(producer_id=1, epoch=0, sequence=1))
    one.log.append(batch, read_header(batch), 0, NOW_MS)
    for other in range(10, 15):
        one.append(producer_id=other)
    assert sorted(found for found, _ in one.log.producers.items()) == [1, 13, 14]
    marker = build_marker(EndMarker(MarkerType.COMMIT, 0), 1, 0, NOW_MS)
    one.log.append(marker, read_header(marker), 0, NOW_MS, origin=COORDINATOR)
    assert sorted(found for found, _ in one.log.producers.items()) == [1, 14]


def test_a_look_up_asks_only_segments_with_aborted_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the number of other segments, and also when the log has just been opened."""
    history = Transactions()
    log = history.one.log
    for _ in range(40):
        history.write_plain(0)
        log.roll(NOW_MS)
    records = log.read(0, 1, log.log_end_offset)
    history.one.close_and_open()
    asked: list[int] = []
    read = segment_indexes.read_transaction_index

    def noted(fs: FileSystem, directory: str, base_offset: int) -> TransactionIndex:
        asked.append(base_offset)
        return read(fs, directory, base_offset)

    monkeypatch.setattr(segment_indexes, "read_transaction_index", noted)
    log = history.one.log
    assert log.aborted_in(records, log.log_end_offset) == []
    assert asked == []
    history.write(1, 1)
    history.end(1, MarkerType.ABORT)
    log.roll(NOW_MS)
    history.write_plain(0)
    log.roll(NOW_MS)
    log.flush()
    for opened in (log, history.one.close_and_open()):
        asked.clear()
        (found,) = opened.aborted_transactions(0, opened.log_end_offset)
        assert (found.first_offset, found.last_offset) == (40, 41)
        assert set(asked) <= {40}


def test_the_aborted_transactions_of_few_closed_segments_stay_in_memory() -> None:
    """Those looked up last; the others are read again, and nothing of them is lost."""
    history = Transactions()
    log = history.one.log
    for _ in range(12):
        history.write(1, 1)
        history.end(1, MarkerType.ABORT)
        log.roll(NOW_MS)
    log.flush()
    for _ in range(2):
        found = log.aborted_transactions(0, log.log_end_offset)
        assert [one.first_offset for one in found] == list(range(0, 24, 2))
        held = [one.indexes.holds_aborted for one in log._segments.closed]
        assert held == [False] * 8 + [True] * 4


def test_segments_that_are_gone_are_not_asked() -> None:
    """Neither those that retention has removed, nor those above a cut."""
    history = Transactions()
    log = history.one.log
    for _ in range(4):
        history.write(1, 1)
        history.end(1, MarkerType.ABORT)
        log.roll(NOW_MS)
    log.flush()
    log.truncate_to(6)
    assert [one.first_offset for one in log.aborted_transactions(0, 6)] == [0, 2, 4]
    log.advance_log_start(4)
    assert log.delete_old_segments(NOW_MS) == 2
    assert log.first_offset == 4
    assert [one.first_offset for one in log.aborted_transactions(4, 6)] == [4]
    assert [one.first_offset for one in log.aborted_transactions(0, 6)] == [4]
