"""Producers that expire, are evicted, come back: the log against a model that forgets nothing.

The log may give up what it knows of a producer only when it has forgotten more of them than it may keep, and it says from
which id on (`ProducerStates.lost_from`). Of every id below it is as if it had forgotten nothing, also after restarts,
crashes, and on a replica that begins with its snapshot: no record is stored twice, none that is missing is passed over, and
the next one is always stored.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode
from echoless.storage.appended import Appended
from echoless.storage.log_config import LogConfig
from echoless.storage.producers.state import NONE_LOST
from tests.storage.one_log import NOW_MS, OneLog

PRODUCERS = st.integers(0, 9)
EXPIRATION_MS = 1000
OLDER_END = 5
"""Ids below were known to a deleted topic of the same name."""


class ForgettingMachine(RuleBasedStateMachine):
    """Many producers on one log that can remember few."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[int, list[int]] = defaultdict(list)
        """All sequences that were ever stored of each producer, in order; everything has epoch 0."""
        self.now_ms = NOW_MS

    @initialize(known=st.integers(1, 4), kept=st.integers(0, 4), older=st.booleans())
    def begin(self, known: int, kept: int, older: bool) -> None:
        self.kept = kept
        self.older_end = OLDER_END if older else 0
        self.one = OneLog(
            LogConfig(
                segment_bytes=700,
                producers_max=known,
                forgotten_producers_max=kept,
                producer_id_expiration_ms=EXPIRATION_MS,
                window=2,
                older_ids_end=self.older_end,
            )
        )

    @rule(producer_id=PRODUCERS, ahead=st.integers(-4, 3), count=st.integers(1, 3))
    def send(self, producer_id: int, ahead: int, count: int) -> None:
        """A batch that is the next one, a repeat, or leaves a gap, or overlaps."""
        stored = self.stored[producer_id]
        expected = stored[-1] + 1 if stored else 0
        sequence = max(expected + ahead, 0)
        lost_from = self.one.log.producers.lost_from
        answer = self.one.append(
            producer_id=producer_id, sequence=sequence, count=count, now_ms=self.now_ms
        )
        sequences = range(sequence, sequence + count)
        self.check(producer_id, sequences, answer, lost_from)
        if isinstance(answer, Appended):
            stored += sequences

    def check(self, producer_id: int, sequences: range, answer: Any, lost_from: int) -> None:
        stored = self.stored[producer_id]
        held = [sequence in stored for sequence in sequences]
        if isinstance(answer, Duplicate) or code_of(answer) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            assert all(held), "a record that was never stored is called a duplicate"
        if not stored:
            may_go_on = producer_id < self.older_end <= lost_from
            assert isinstance(answer, Appended) == (sequences[0] == 0 or may_go_on)
        elif producer_id < lost_from:
            is_next = sequences[0] == stored[-1] + 1
            assert isinstance(answer, Appended) == is_next, answer
            if all(held) and sequences[-1] <= stored[-1] and stored[-1] - stored[0] < len(stored):
                assert code_of(answer) in {None, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
        elif sequences[0] > 0 and sequences[0] != stored[-1] + 1:
            assert not isinstance(answer, Appended), "a lost producer begins at 0"

    @rule(for_ms=st.sampled_from([1, EXPIRATION_MS // 2, EXPIRATION_MS + 1]))
    def wait(self, for_ms: int) -> None:
        """Time passes, and what is idle expires."""
        self.now_ms += for_ms
        self.one.log.expire_producers(self.now_ms)

    @rule()
    def stop_and_start(self) -> None:
        self.one.close_and_open()

    @rule()
    def flush(self) -> None:
        self.one.log.flush()

    @rule()
    def crash(self) -> None:
        """As by kill -9: the log is rebuilt from the last flush and the batches."""
        recovery_point = self.one.log.recovery_point
        self.one.open(recovery_point=recovery_point, now_ms=self.now_ms)

    @precondition(lambda self: self.one.log.log_end_offset > 0)
    @rule()
    def delete_records(self) -> None:
        """All records go; their producers are known by the snapshot alone."""
        log = self.one.log
        log.roll(self.now_ms)
        log.flush()
        log.advance_log_start(log.log_end_offset)
        log.delete_old_segments(self.now_ms)

    @rule()
    def move_to_a_replica(self) -> None:
        """A new replica begins with the leader's snapshot, copies the rest, and leads."""
        log = self.one.log
        log.flush()
        chunk = log.producer_snapshot_chunk(None, 0, 1 << 30)
        replica = OneLog(self.one.config)
        replica.log.reset_to(chunk.offset, chunk.data, clock_ahead_ms=0, now_ms=self.now_ms)
        while replica.log.log_end_offset < log.log_end_offset:
            batches = log.read_for_replica(replica.log.log_end_offset, 1 << 20)
            replica.log.append_replicated(batches, self.now_ms)
        self.one = replica

    def teardown(self) -> None:
        if self.stored and len(self.stored) <= self.kept:
            assert self.one.log.producers.lost_from == NONE_LOST, "there was room for all"


def code_of(answer: Any) -> ErrorCode | None:
    return answer.code if isinstance(answer, Reject) else None


def check_against_model(examples: int, steps: int) -> None:
    run(
        ForgettingMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_forgetting_agrees_with_the_model() -> None:
    """The log decides as if nothing had been forgotten."""
    check_against_model(examples=100, steps=40)


@pytest.mark.slow
def test_forgetting_agrees_with_the_model_for_long() -> None:
    """The same over many more and longer lives."""
    check_against_model(examples=400, steps=80)
