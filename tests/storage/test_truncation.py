"""Cutting a log: producers, leader epochs and the log start become those of what is left."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.record_batch import read_header
from echoless.storage.leader_epochs import LeaderEpoch
from echoless.storage.log_directory import LogDirectory
from tests.fakes.memory_file_system import MemoryFileSystem, keep_none
from tests.storage.log_workload import (
    Facts,
    Stored,
    facts_of_entries,
    facts_of_history,
    make_batch,
    new_file_system,
    stamped,
)
from tests.storage.one_log import NOW_MS, SMALL, OneLog

appends = st.tuples(st.just("append"), st.integers(-1, 3), st.integers(1, 3), st.integers(0, 2))
"""Producer id, number of records, and by how much the leader epoch rises first."""
others = st.tuples(
    st.sampled_from(["roll", "flush", "delete", "kill", "restart"]),
    st.integers(0, 99),
    st.just(0),
    st.just(0),
)
cuts = st.tuples(st.just("cut"), st.integers(0, 99), st.just(0), st.just(0))
actions = st.lists(st.one_of(appends, appends, appends, others, cuts), max_size=40)


@dataclass(slots=True)
class Model:
    """A follower's log, and all that was ever replicated into it, with the time of each append."""

    one: OneLog = field(default_factory=OneLog)
    history: list[tuple[Stored, int]] = field(default_factory=list)
    now_ms: int = NOW_MS
    leader_epoch: int = 0

    def append(self, producer_id: int, count: int, epochs: int) -> None:
        self.leader_epoch += epochs
        self.now_ms += 10
        entry = self.one.log.producers.get(producer_id) if producer_id >= 0 else None
        batch = make_batch(
            producer_id=producer_id,
            epoch=0 if producer_id >= 0 else -1,
            sequence=(entry.last_sequence + 1 if entry else 0) if producer_id >= 0 else -1,
            count=count,
            timestamp=self.now_ms,
        )
        stored = stamped(batch, self.one.log.log_end_offset, self.leader_epoch)
        self.one.log.append_replicated(stored.data, self.now_ms)
        self.history.append((stored, self.now_ms))

    def roll(self, _: int) -> None:
        self.one.log.roll(self.now_ms)

    def flush(self, _: int) -> None:
        self.one.log.flush()

    def delete(self, percent: int) -> None:
        log = self.one.log
        log.advance_log_start(log.log_end_offset * percent // 100)
        log.delete_old_segments(self.now_ms)

    def kill(self, _: int) -> None:
        self._reopen(clean=False)

    def restart(self, _: int) -> None:
        self.one.log.close()
        self._reopen(clean=True)

    def _reopen(self, *, clean: bool) -> None:
        log = self.one.log
        self.one.open(
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            clean=clean,
            now_ms=self.now_ms,
        )

    def cut(self, percent: int) -> None:
        log = self.one.log
        offset = log.first_offset + (log.log_end_offset - log.first_offset) * percent // 100
        log.truncate_to(offset)
        self.history = [(s, ms) for s, ms in self.history if s.end_offset <= offset]
        self.leader_epoch += 1

    def check(self) -> None:
        log = self.one.log
        end = self.history[-1][0].end_offset if self.history else 0
        assert log.log_end_offset == end
        assert facts_of_entries(log.producers.items()) == self._facts()
        last_append_ms = {s.header.producer_id: ms for s, ms in self.history}
        for producer_id, entry in log.producers.items():
            assert entry.last_append_ms >= last_append_ms[producer_id]
        # Where all batches are gone, the epoch of the last one may still be known.
        entries = tuple(e for e in log.leader_epochs.entries if e.start_offset < end)
        assert entries == self._epochs()

    def _facts(self) -> Facts:
        return facts_of_history((s for s, _ in self.history), SMALL.window)

    def _epochs(self) -> tuple[LeaderEpoch, ...]:
        """Each epoch with the first of its offsets that is still on disk, deleted or not."""
        start = self.one.log.first_offset
        firsts: dict[int, int] = {}
        for stored, _ in self.history:
            if stored.end_offset > start:
                header = stored.header
                firsts.setdefault(header.partition_leader_epoch, max(header.base_offset, start))
        return tuple(LeaderEpoch(epoch, offset) for epoch, offset in firsts.items())


def check_actions(steps: list[tuple[str, int, int, int]]) -> None:
    model = Model()
    for kind, first, count, epochs in steps:
        if kind == "append":
            model.append(first, count, epochs)
        else:
            getattr(model, kind)(first)
        model.check()
    model.kill(0)
    model.check()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(actions)
def test_a_cut_log_knows_what_a_fresh_replay_would_know(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """Producers and epochs are those of the batches left, and no append time is earlier than true."""
    check_actions(steps)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(actions)
def test_many_cut_logs_know_what_a_fresh_replay_would_know(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """The same for many more."""
    check_actions(steps)


def test_a_leader_that_appended_nothing_is_forgotten_without_a_cut() -> None:
    """Otherwise the replica would ask with an epoch that its new leader never heard of, for ever."""
    one = OneLog()
    one.fill(3)
    one.log.leader_epochs.assign(5, 3)
    one.log.truncate_to(3)
    assert (one.log.log_end_offset, one.log.leader_epochs.latest_epoch) == (3, 0)
    assert one.open().leader_epochs.latest_epoch == 0
    one.log.leader_epochs.assign(5, 3)
    one.log.truncate_to(100)
    assert one.log.leader_epochs.latest_epoch == 0


def test_a_cut_below_the_first_snapshot_replays_from_the_beginning() -> None:
    """Snapshots above the cut go; the log itself knows the rest."""
    one = OneLog()
    one.fill(20)
    one.log.flush()
    first = int(one.files(".snapshot")[0][:20])
    one.log.truncate_to(first - 1)
    entry = one.log.producers.get(1)
    assert entry is not None
    assert entry.last_sequence == first - 2
    assert one.files(".snapshot") == []


def test_a_log_is_not_cut_below_its_first_segment() -> None:
    """The state of the producers there is not known: `reset_to` is for that."""
    one = OneLog()
    one.fill(20)
    one.log.flush()
    one.log.advance_log_start(10)
    one.log.delete_old_segments(NOW_MS)
    with pytest.raises(AssertionError, match="the log begins at"):
        one.log.truncate_to(one.log.first_offset - 1)
    first = one.log.first_offset
    one.log.truncate_to(first)
    assert (one.log.first_offset, one.log.log_start_offset, one.log.log_end_offset) == (first,) * 3
    entry = one.log.producers.get(1)
    assert entry is not None
    assert entry.last_sequence == first - 1


def test_producers_that_a_cut_brings_back_are_as_old_as_they_were() -> None:
    """The snapshot has a producer that had expired; the next sweep forgets it again."""
    one = OneLog(replace(SMALL, producer_id_expiration_ms=1000))
    one.append(producer_id=1, now_ms=NOW_MS)
    one.log.roll(NOW_MS)
    one.append(producer_id=2, now_ms=NOW_MS + 900)
    one.log.flush()
    assert one.log.expire_producers(NOW_MS + 1000) == 1
    one.append(producer_id=2, sequence=1, now_ms=NOW_MS + 1000)
    one.log.truncate_to(2)
    assert [producer_id for producer_id, _ in one.log.producers.items()] == [1, 2]
    assert one.log.expire_producers(NOW_MS + 1000) == 1


def test_a_log_start_above_the_cut_comes_down_with_it_on_disk() -> None:
    """Else a power failure after the cut would make an empty log at the old log start."""
    fs = new_file_system()
    directory = open_directory(fs)
    log = directory.create("orders", 0, uuid.UUID(int=7), SMALL, now_ms=NOW_MS)
    for sequence in range(6):
        batch = make_batch(producer_id=1, epoch=0, sequence=sequence)
        log.append(batch, read_header(batch), 0, NOW_MS)
    log.advance_log_start(5)
    log.flush()
    directory.checkpoint({("orders", 0): 6})
    log.truncate_to(3)
    found = open_directory(fs.after_power_loss(keep_none))
    survivor = found.logs["orders", 0]
    assert (survivor.first_offset, survivor.log_end_offset) == (0, 3)
    assert survivor.log_start_offset == log.log_start_offset == 3
    assert len(survivor.producers) == 1
    assert found.high_watermarks == {("orders", 0): 3}


def open_directory(fs: MemoryFileSystem) -> LogDirectory:
    return LogDirectory.open("/data", broker_id=1, fs=fs, now_ms=NOW_MS, config_for=lambda _: SMALL)
