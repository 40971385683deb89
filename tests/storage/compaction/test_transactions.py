"""Compaction of logs with transactions: readers of committed records, producers and replicas notice nothing.

Random histories to two logs, one of which is cleaned; and the life of a marker, step by step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker, read_marker
from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.marker_decision import LastMarker
from echoless.protocol.record_batch import BatchHeader, read_header
from echoless.protocol.records import Record, iterate_records
from echoless.storage import paths
from echoless.storage.append_origin import AppendOrigin
from echoless.storage.appended import Appended
from echoless.storage.log import Log
from echoless.storage.producers.snapshot import encode_snapshot
from tests.fakes.memory_file_system import (
    MemoryFileSystem,
    PowerFailure,
    Survival,
    keep_all,
    keep_none,
)
from tests.storage.compaction.keyed_log import (
    CONFIG,
    Pair,
    append,
    batches_of,
    clean,
    compacted_view,
    keyed_batch,
)
from tests.storage.one_log import DIRECTORY, NOW_MS, OneLog

PRODUCERS = 3
RETENTION_MS = CONFIG.compaction_rules.delete_retention_ms
COMMIT, ABORT = MarkerType.COMMIT, MarkerType.ABORT
Result = Appended | Duplicate | Reject


def write(log: Log, producer_id: int, sequence: int, pairs: Iterable[Pair]) -> Result:
    """Writes a batch in a transaction; `sequence` -1: as the coordinator of groups does."""
    batch = keyed_batch(pairs, producer_id=producer_id, sequence=sequence, is_transactional=True)
    origin = AppendOrigin.CLIENT if sequence >= 0 else AppendOrigin.COORDINATOR
    return log.append(batch, read_header(batch), 0, NOW_MS, origin=origin)  # type: ignore[arg-type]


def end(log: Log, producer_id: int, kind: MarkerType, number: int, epoch: int = 0) -> Result:
    """Writes a marker."""
    batch = build_marker(EndMarker(kind, 0, number), producer_id, epoch, NOW_MS)
    return log.append(batch, read_header(batch), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


def committed(log: Log) -> list[Record]:
    """Returns the records of a reader of committed ones, who filters as Kafka's Java consumer does.

    With the aborted transactions of the whole range, and of one step at a time.
    """
    batches = batches_of(log)
    whole = read_committed(log, [batches])
    assert read_committed(log, [[one] for one in batches]) == whole
    return whole


def read_committed(log: Log, answers: list[list[tuple[BatchHeader, bytes]]]) -> list[Record]:
    found: list[Record] = []
    stable = log.last_stable_offset(log.log_end_offset)
    for answer in filter(None, answers):
        start, after = answer[0][0].base_offset, answer[-1][0].next_offset
        coming = sorted(log.aborted_transactions(start, after), key=lambda one: one.first_offset)
        aborted: set[int] = set()
        for header, data in answer:
            while coming and coming[0].first_offset <= header.last_offset:
                aborted.add(coming.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(data)
                if marker is not None and marker.type is ABORT:
                    aborted.discard(header.producer_id)
            elif header.next_offset <= stable and not (
                header.is_transactional and header.producer_id in aborted
            ):
                found += iterate_records(data)
    return found


def transactions_of(log: Log) -> tuple[list[tuple[int, int]], list[LastMarker | None], int]:
    """Returns the state of transactions; a replica that begins later holds no reader back before its start."""
    producers = log.producers
    opened = producers.open_transactions
    return (
        [] if opened is None else list(opened.items()),
        [producers.last_marker(one) for one in range(PRODUCERS)],
        log.last_stable_offset(log.log_end_offset),
    )


keys = st.sampled_from([b"a", b"b", b"c", b"d" * 20])
pairs_drawn = st.lists(
    st.tuples(keys, st.one_of(st.none(), st.binary(max_size=9))), min_size=1, max_size=3
)
step = st.one_of(
    st.tuples(st.just("write"), st.integers(0, PRODUCERS - 1), pairs_drawn),
    st.tuples(st.just("write"), st.integers(0, PRODUCERS - 1), pairs_drawn),
    st.tuples(st.just("offsets"), st.integers(0, PRODUCERS - 1), pairs_drawn),
    st.tuples(st.just("plain"), st.integers(0, PRODUCERS), pairs_drawn),
    st.tuples(st.just("commit"), st.integers(0, PRODUCERS - 1), st.just([])),
    st.tuples(st.just("abort"), st.integers(0, PRODUCERS - 1), st.just([])),
    st.tuples(st.just("abort"), st.integers(0, PRODUCERS - 1), st.just([])),
    st.tuples(st.sampled_from(["clean", "clean", "clean some", "later", "roll", "kill", "close"]), st.just(0), st.just([])),
)  # fmt: skip


@dataclass
class History:
    """Two logs with the same batches, one of them cleaned now and then."""

    cleaned: OneLog = field(default_factory=lambda: OneLog(CONFIG))
    plain: OneLog = field(default_factory=lambda: OneLog(replace(CONFIG, is_compacted=False)))
    sequences: dict[int, int] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    now_ms: int = NOW_MS

    def play(self, kind: str, producer_id: int, pairs: list[Pair]) -> None:
        log = self.cleaned.log
        match kind:
            case "clean":
                clean(log, now_ms=self.now_ms)
            case "clean some":
                clean(log, now_ms=self.now_ms, map_bytes_max=192)
            case "later":
                self.now_ms += RETENTION_MS
            case "roll":
                log.roll(NOW_MS)
            case "kill" | "close":
                for one in (self.cleaned, self.plain):
                    if kind == "close":
                        one.close_and_open()
                    else:
                        one.open(recovery_point=one.log.recovery_point)
            case _:
                self.append(kind, producer_id, pairs)

    def append(self, kind: str, producer_id: int, pairs: list[Pair]) -> None:
        sequence, number = self.sequences.get(producer_id, 0), self.numbers.get(producer_id, 0)
        answers = []
        for one in (self.cleaned, self.plain):
            match kind:
                case "write":
                    answers.append(write(one.log, producer_id, sequence, pairs))
                case "offsets":
                    answers.append(write(one.log, producer_id, -1, pairs))
                case "plain" if producer_id == PRODUCERS:
                    answers.append(append(one.log, keyed_batch(pairs)))
                case "plain":
                    batch = keyed_batch(pairs, producer_id=producer_id, sequence=sequence)
                    answers.append(append(one.log, batch))
                case _:
                    kind_of = COMMIT if kind == "commit" else ABORT
                    answers.append(end(one.log, producer_id, kind_of, number))
        assert answers[0] == answers[1]
        if isinstance(answers[0], Appended):
            if kind in {"write", "plain"}:
                self.sequences[producer_id] = sequence + len(pairs)
            elif kind != "offsets":
                self.numbers[producer_id] = number + 1

    def check(self) -> None:
        log, expected = self.cleaned.log, self.plain.log
        assert transactions_of(log) == transactions_of(expected)
        before = committed(expected)
        after = committed(log)
        assert compacted_view(after) == compacted_view(before)
        assert all(record in before for record in after)

    def check_replicas(self) -> None:
        """A replica that begins with nothing, and those that begin with a snapshot at a segment's base."""
        log = self.cleaned.log
        log.flush()
        batches = batches_of(log)
        expected = transactions_of(log)
        bases = [s.base_offset for s in log._segments]
        for base in [0, *bases[1:]]:
            path = paths.offset_file(DIRECTORY, base, paths.SNAPSHOT)
            if base and not self.cleaned.fs.exists(path):
                continue
            replica = OneLog(CONFIG)
            if base:
                data = self.cleaned.fs.read_bytes(path)
                replica.log.reset_to(base, data, clock_ahead_ms=0, now_ms=NOW_MS)
            for header, batch in batches:
                if header.base_offset >= base:
                    replica.log.append_replicated(batch, NOW_MS)
            opened, markers, stable = transactions_of(replica.log)
            assert (opened, markers) == expected[:2]
            assert stable == max(expected[2], base)
            if not base:
                assert compacted_view(committed(replica.log)) == compacted_view(committed(log))


@pytest.mark.slow
@given(st.lists(step, min_size=8, max_size=60))
@settings(deadline=None)
def test_cleaning_changes_nothing_that_is_committed(
    steps: list[tuple[str, int, list[Pair]]],
) -> None:
    """Committed records, open transactions, last markers and the last stable offset, at every moment and on replicas."""
    history = History()
    for one in steps:
        history.play(*one)
        history.check()
    for _ in range(4):
        history.play("clean", 0, [])
        history.play("later", 0, [])
        history.check()
    history.check_replicas()


def kinds(log: Log) -> list[str]:
    """One word for each batch: its producer, and what it is."""
    found = []
    for header, data in batches_of(log):
        marker = read_marker(data) if header.is_control else None
        name = marker.type.name if marker is not None else f"{header.record_count}"
        found.append(f"{header.base_offset}:{header.producer_id}:{name}")
    return found


def test_an_aborted_record_hides_no_older_one() -> None:
    """Its records go with the first pass, and the older ones of their keys stay."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch([(b"a", b"old")]))
    write(one.log, 1, 0, [(b"a", b"aborted"), (b"b", b"aborted")])
    end(one.log, 1, ABORT, 1)
    write(one.log, 1, 2, [(b"c", b"committed")])
    end(one.log, 1, COMMIT, 2)
    assert clean(one.log)
    assert [(r.key, r.value) for r in committed(one.log)] == [(b"a", b"old"), (b"c", b"committed")]
    assert kinds(one.log) == ["0:-1:1", "1:1:0", "3:1:ABORT", "4:1:1", "5:1:COMMIT"]


def test_a_committed_record_hides_older_ones() -> None:
    """One of the coordinator of groups has no sequence, and goes as soon as a newer one has its key."""
    one = OneLog(CONFIG)
    for number in (1, 2):
        write(one.log, 1, -1, [(b"a", b"%d" % number)])
        end(one.log, 1, COMMIT, number)
    assert clean(one.log)
    assert kinds(one.log) == ["1:1:COMMIT", "2:1:1", "3:1:COMMIT"]


def test_nothing_is_cleaned_from_an_open_transaction_on() -> None:
    """A record that may yet be aborted hides nothing."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch([(b"a", b"old")]))
    one.log.roll()
    write(one.log, 1, 0, [(b"a", b"new")])
    append(one.log, keyed_batch([(b"b", b"1")]))
    append(one.log, keyed_batch([(b"b", b"2")]))
    clean(one.log)
    assert kinds(one.log) == ["0:-1:1", "1:1:1", "2:-1:1", "3:-1:1"]
    end(one.log, 1, COMMIT, 1)
    assert clean(one.log)
    assert [r.value for r in committed(one.log)] == [b"new", b"2"]


def test_a_marker_goes_after_its_batches_and_its_time() -> None:
    """First the batches, then the time of tombstones passes, then the marker and its entry go together."""
    one = OneLog(CONFIG)
    write(one.log, 1, -1, [(b"a", b"1")])
    end(one.log, 1, ABORT, 1)
    write(one.log, 1, -1, [(b"b", b"1")])
    end(one.log, 1, COMMIT, 2)
    assert clean(one.log)
    first = batches_of(one.log)[0][0]
    assert kinds(one.log) == ["1:1:ABORT", "2:1:1", "3:1:COMMIT"]
    assert (first.has_delete_horizon, first.base_timestamp) == (True, NOW_MS + RETENTION_MS)
    assert read_marker(batches_of(one.log)[0][1]) == EndMarker(ABORT, 0, 1)
    assert first.max_timestamp == NOW_MS
    assert len(one.log.aborted_transactions(0, 9)) == 1
    assert not clean(one.log, now_ms=NOW_MS + RETENTION_MS - 1)
    append(one.log, keyed_batch([(b"c", b"1")]))
    assert clean(one.log, now_ms=NOW_MS + RETENTION_MS - 1)
    assert kinds(one.log) == ["1:1:ABORT", "2:1:1", "3:1:COMMIT", "4:-1:1"]
    assert clean(one.log, now_ms=NOW_MS + RETENTION_MS)
    assert kinds(one.log) == ["2:1:1", "3:1:COMMIT", "4:-1:1"]
    assert one.log.aborted_transactions(0, 9) == []
    one.log.flush()
    one.open(recovery_point=one.log.recovery_point)
    assert one.log.aborted_transactions(0, 9) == []


def test_a_marker_stays_while_a_record_of_its_transaction_does() -> None:
    """A replica would take what was committed for a part of the next transaction, which was aborted."""
    one = OneLog(CONFIG)
    write(one.log, 1, -1, [(b"a", b"1")])
    end(one.log, 1, COMMIT, 1)
    write(one.log, 1, -1, [(b"b", b"1")])
    end(one.log, 1, ABORT, 2)
    for after in (0, 1, 2):
        append(one.log, keyed_batch([(b"z", b"1")]))
        assert clean(one.log, now_ms=NOW_MS + after * RETENTION_MS)
    assert kinds(one.log)[:3] == ["0:1:1", "1:1:COMMIT", "3:1:ABORT"]
    replica = OneLog(CONFIG)
    for _, batch in batches_of(one.log):
        replica.log.append_replicated(batch, NOW_MS)
    assert [record.value for record in committed(replica.log)][:1] == [b"1"]


def test_a_marker_stays_while_an_empty_batch_of_its_transaction_does() -> None:
    """A batch that ends a segment stays without records; a replica would have its transaction open for ever."""
    one = OneLog(replace(CONFIG, segment_bytes=400))
    append(one.log, keyed_batch([(b"k", bytes(150))]))
    write(one.log, 1, -1, [(b"a", b"1")])
    one.log.roll()
    append(one.log, keyed_batch([(b"l", bytes(150))]))
    end(one.log, 1, COMMIT, 1)
    one.log.roll()
    append(one.log, keyed_batch([(b"a", b"2")]))
    end(one.log, 1, COMMIT, 2)
    one.log.flush()
    one.fs.remove(paths.offset_file(DIRECTORY, 2, paths.SNAPSHOT))
    for after in (0, 1, 2):
        append(one.log, keyed_batch([(b"z", b"1")]))
        assert clean(one.log, now_ms=NOW_MS + after * RETENTION_MS)
    assert kinds(one.log)[:4] == ["0:-1:1", "1:1:0", "2:-1:1", "3:1:COMMIT"]


def test_the_last_marker_of_a_producer_stays() -> None:
    """It says which late copies end nothing; a tool's marker leaves the one with the highest number."""
    one = OneLog(CONFIG)
    write(one.log, 1, -1, [(b"a", b"1")])
    end(one.log, 1, ABORT, 5)
    write(one.log, 1, -1, [(b"a", b"2")])
    end(one.log, 1, ABORT, -1)
    for after in (0, 1, 2):
        append(one.log, keyed_batch([(b"z", b"1")]))
        assert clean(one.log, now_ms=NOW_MS + after * RETENTION_MS)
    assert [one for one in kinds(one.log) if ":1:" in one] == ["1:1:ABORT", "3:1:ABORT"]
    replica = OneLog(CONFIG)
    for _, batch in batches_of(one.log):
        replica.log.append_replicated(batch, NOW_MS)
    assert replica.log.producers.last_marker(1) == one.log.producers.last_marker(1)


def test_a_marker_stays_while_a_snapshot_begins_in_its_transaction() -> None:
    """A replica that begins with the snapshot would have the transaction open for ever."""
    one = OneLog(replace(CONFIG, segment_bytes=400))
    append(one.log, keyed_batch([(b"k", bytes(150))]))
    write(one.log, 1, -1, [(b"a", b"1")])
    append(one.log, keyed_batch([(b"m", b"1")]))
    one.log.roll()
    append(one.log, keyed_batch([(b"l", bytes(150))]))
    end(one.log, 1, COMMIT, 1)
    one.log.roll()
    append(one.log, keyed_batch([(b"a", b"2")]))
    write(one.log, 1, -1, [(b"b", b"1")])
    end(one.log, 1, COMMIT, 2)
    late = NOW_MS
    for _ in range(3):
        clean(one.log, now_ms=late)
        late += RETENTION_MS
    names = kinds(one.log)
    assert names[:2] == ["0:-1:1", "2:-1:1"]
    assert "4:1:COMMIT" in names
    path = paths.offset_file(DIRECTORY, 3, paths.SNAPSHOT)
    replica = OneLog(CONFIG)
    replica.log.reset_to(3, one.fs.read_bytes(path), clock_ahead_ms=0, now_ms=NOW_MS)
    for header, batch in batches_of(one.log):
        if header.base_offset >= 3:
            replica.log.append_replicated(batch, NOW_MS)
    assert transactions_of(replica.log) == transactions_of(one.log)
    one.fs.remove(path)
    append(one.log, keyed_batch([(b"y", b"1")]))
    assert clean(one.log, now_ms=late)
    assert "4:1:COMMIT" not in kinds(one.log)


def test_an_abort_behind_the_pass_is_known() -> None:
    """A transaction begins in a closed segment, and its marker is in the active one, in memory alone."""
    one = OneLog(CONFIG)
    append(one.log, keyed_batch([(b"a", b"old")]))
    write(one.log, 1, 0, [(b"a", b"aborted")])
    one.log.roll()
    end(one.log, 1, ABORT, 1)
    assert clean(one.log, is_rolled=False)
    assert [r.value for r in committed(one.log)] == [b"old"]
    assert encode_snapshot(3, one.log.producers)  # still a whole state


@dataclass(slots=True)
class LogInMemory(OneLog):
    """A log whose file system loses power on command."""

    @property
    def fs_in_memory(self) -> MemoryFileSystem:
        assert isinstance(self.fs, MemoryFileSystem)
        return self.fs


def long_history() -> LogInMemory:
    """Transactions of two producers that overlap, in several segments; all of it flushed."""
    one = LogInMemory(CONFIG)
    one.fs.sync_directory("/data")
    sequence = 0
    for number in range(1, 7):
        for key in (b"a", b"b", b"c"):
            write(one.log, 1, sequence, [(key, b"%d" % number)])
            sequence += 1
            write(one.log, 2, -1, [(key, b"by 2")])
        end(one.log, 1, ABORT if number % 2 else COMMIT, number)
        end(one.log, 2, ABORT, number)
    one.log.roll()
    one.log.flush()
    return one


def two_passes(one: OneLog) -> None:
    """One that drops batches, and one that drops markers and entries."""
    for now_ms in (NOW_MS, NOW_MS + RETENTION_MS):
        clean(one.log, is_rolled=False, now_ms=now_ms)


@pytest.mark.parametrize("survival", [keep_all, keep_none])
def test_a_power_failure_in_a_pass_shows_no_aborted_record(survival: Survival) -> None:
    """Before each operation of both passes; afterwards they are done again."""
    one = long_history()
    expected = compacted_view(committed(one.log))
    begin = one.fs_in_memory.operations
    two_passes(one)
    markers = {header.base_offset for header, _ in batches_of(one.log) if header.is_control}
    entries = {entry.last_offset for entry in one.log.aborted_transactions(0, 999)}
    assert entries < markers
    assert len(markers) < 12
    for operation in range(begin, one.fs_in_memory.operations):
        one = long_history()
        recovery_point = one.log.recovery_point
        one.fs_in_memory.lose_power_at = operation
        with pytest.raises(PowerFailure):
            two_passes(one)
        one.fs = one.fs_in_memory.after_power_loss(survival)
        one.open(recovery_point=recovery_point)
        assert compacted_view(committed(one.log)) == expected
        assert one.log.last_stable_offset(one.log.log_end_offset) == one.log.log_end_offset
        two_passes(one)
        assert compacted_view(committed(one.log)) == expected
