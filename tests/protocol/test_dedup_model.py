"""The decision against a naive model that forgets nothing.

The model keeps every batch ever stored, in order, and answers from that list alone, as
`docs/protocol/deduplication.md` and `docs/differences.md` say it; the code under test keeps a window and a run. Besides
agreement, three laws are checked for each answer by themselves, so that model and code cannot be
wrong together:

* a batch is never appended when one of its sequences is already stored in its epoch;
* a batch is never called a duplicate (by offset or by 46) when one of its sequences is not stored;
* the next batch in sequence is always appended.

Sequences are compared by number: no run here is as long as the 2**31 numbers, so none comes twice.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from echoless.protocol.dedup import Append, Duplicate, PartitionRules, Reject, UnknownProducerId
from echoless.protocol.dedup import commit as commit_batch
from echoless.protocol.dedup import decide as decide_batch
from tests.protocol.sample_batches import header

CIRCLE = 2**31
PRODUCER_ID = header(0).producer_id
COUNTS = st.integers(1, 6)
STARTS = st.one_of(
    st.just(0),
    st.integers(0, 40),
    st.integers(CIRCLE - 40, CIRCLE - 1),
    st.integers(CIRCLE // 2 - 20, CIRCLE // 2 + 20),
    st.integers(0, CIRCLE - 1),
)


class Stored(NamedTuple):
    """One batch in the model's memory."""

    epoch: int
    sequences: tuple[int, ...]
    base_offset: int
    crc: int


class Model:
    """All that was ever stored for one producer id on one partition."""

    def __init__(self, *, window, accepts_unknown, has_held_records, may_go_on):
        self.window = window
        self.may_go_on = may_go_on
        """The id is older than a deleted topic of the same name."""
        self.accepts_unknown = accepts_unknown
        self.has_held_records = has_held_records
        self.stored = []

    @property
    def epoch(self):
        return self.stored[-1].epoch

    @property
    def expected_next(self):
        return (self.stored[-1].sequences[-1] + 1) % CIRCLE

    def in_epoch(self, epoch):
        return [batch for batch in self.stored if batch.epoch == epoch]

    def holds(self, epoch, sequence):
        return any(sequence in batch.sequences for batch in self.in_epoch(epoch))

    def answer(self, epoch, sequences, crc):
        """The answer that the specification gives, as `describe` writes it."""
        if not self.stored:
            return self._answer_unknown(sequences)
        if epoch < self.epoch:
            return 47
        if epoch > self.epoch:
            return "append" if sequences[0] == 0 else 45
        return self._answer_known(sequences, crc)

    def _answer_unknown(self, sequences):
        if sequences[0] == 0 or self.accepts_unknown or self.may_go_on:
            return "append"
        return 59 if self.has_held_records else 45

    def _answer_known(self, sequences, crc):
        for batch in self.in_epoch(self.epoch)[-self.window :]:
            if batch.sequences == sequences:
                return ("duplicate", batch.base_offset, batch.crc != crc)
        if sequences[0] == self.expected_next:
            return "append"
        # Provable means: all of it is stored, and by plain numbers it is not above the last one,
        # so that nobody could take it for what comes after the next wrap.
        last_stored = self.stored[-1].sequences[-1]
        is_plain = sequences[0] <= sequences[-1] <= last_stored
        if is_plain and all(self.holds(self.epoch, sequence) for sequence in sequences):
            return 46
        return 45


def describe(decision):
    match decision:
        case Append():
            return "append"
        case Duplicate(original=original, divergent=divergent):
            return ("duplicate", original.base_offset, divergent)
        case Reject(code=code):
            return int(code)


class DecisionMachine(RuleBasedStateMachine):
    """Sends one producer's batches, right and wrong ones, to the code and to the model."""

    def __init__(self):
        super().__init__()
        self.entry = None
        self.model = None
        self.log_end_offset = 0

    @initialize(
        window=st.integers(1, 8),
        accepts=st.booleans(),
        log_end_offset=st.sampled_from([0, 50]),
        recovered=st.none() | st.tuples(STARTS, COUNTS),
        may_go_on=st.booleans(),
    )
    def begin(self, window, accepts, log_end_offset, recovered, may_go_on):
        """A log that may have held records, and may begin in the middle of a producer's run."""
        self.model = Model(
            window=window,
            accepts_unknown=accepts,
            has_held_records=log_end_offset > 0,
            may_go_on=may_go_on,
        )
        self.log_end_offset = log_end_offset
        if recovered:
            start, count = recovered
            sequences = tuple((start + index) % CIRCLE for index in range(count))
            self.append(header(start, count), Stored(0, sequences, log_end_offset, 1))

    def knows_the_producer(self):
        return bool(self.model and self.model.stored)

    @rule(start=STARTS, count=COUNTS, epoch=st.integers(0, 3), crc=st.integers(0, 1))
    def send_anything(self, start, count, epoch, crc):
        self.send(epoch, start, count, crc)

    @precondition(knows_the_producer)
    @rule(count=COUNTS, crc=st.integers(0, 1))
    def send_the_next(self, count, crc):
        assert self.send(self.model.epoch, self.model.expected_next, count, crc) == "append"

    @precondition(knows_the_producer)
    @rule(counts=st.lists(COUNTS, min_size=2, max_size=9))
    def send_several(self, counts):
        for count in counts:
            self.send_the_next(count, 0)

    @precondition(knows_the_producer)
    @rule(age=st.integers(0, 30), crc=st.integers(0, 1))
    def repeat(self, age, crc):
        """Any batch of any epoch again, however old."""
        batch = self.model.stored[-1 - age % len(self.model.stored)]
        self.send(batch.epoch, batch.sequences[0], len(batch.sequences), crc)

    @precondition(knows_the_producer)
    @rule(back=st.integers(1, 40), count=st.integers(1, 50))
    def cut_differently(self, back, count):
        """Begins among what may be stored, and ends there or beyond."""
        start = (self.model.expected_next - back) % CIRCLE
        self.send(self.model.epoch, start, count, 0)

    @precondition(knows_the_producer)
    @rule(ahead=st.integers(1, 40), count=COUNTS)
    def leave_a_gap(self, ahead, count):
        start = (self.model.expected_next + ahead) % CIRCLE
        assert self.send(self.model.epoch, start, count, 0) == 45

    @precondition(knows_the_producer)
    @rule(ahead=st.integers(1, 3), start=st.one_of(st.just(0), STARTS), count=COUNTS)
    def bump_the_epoch(self, ahead, start, count):
        self.send(self.model.epoch + ahead, start, count, 0)

    @precondition(knows_the_producer)
    @rule(count=COUNTS)
    def fail_to_write(self, count):
        """Decided but never committed: the same batch is new once more."""
        batch = header(self.model.expected_next, count, epoch=self.model.epoch)
        assert describe(decide_batch(self.entry, batch, self.partition_rules())) == "append"

    def partition_rules(self):
        return PartitionRules(
            has_held_records=self.log_end_offset > 0,
            unknown_producer_id=UnknownProducerId.ACCEPT
            if self.model.accepts_unknown
            else UnknownProducerId.REJECT,
            older_ids_end=PRODUCER_ID + self.model.may_go_on,
        )

    def send(self, epoch, start, count, crc):
        batch = header(start, count, epoch=epoch, crc=crc)
        sequences = tuple((start + index) % CIRCLE for index in range(count))
        answer = describe(decide_batch(self.entry, batch, self.partition_rules()))
        self.check_laws(answer, epoch, sequences)
        assert answer == self.model.answer(epoch, sequences, crc)
        if answer == "append":
            self.append(batch, Stored(epoch, sequences, self.log_end_offset, crc))
        return answer

    def append(self, batch, stored):
        self.entry = commit_batch(self.entry, batch, self.log_end_offset, 0, self.model.window)
        self.model.stored.append(stored)
        self.log_end_offset += batch.record_count
        self.model.has_held_records = True
        assert len(self.entry.batches) <= self.model.window

    def check_laws(self, answer, epoch, sequences):
        held = [self.model.holds(epoch, sequence) for sequence in sequences]
        if answer == "append":
            assert not any(held), "a stored record would be stored twice"
        if answer == 46 or isinstance(answer, tuple):
            assert all(held), "a record that was never stored is called a duplicate"
        if self.model.stored and epoch == self.model.epoch:
            is_next = sequences[0] == self.model.expected_next
            assert not is_next or answer == "append", "the next batch was refused"


def check_against_model(examples, steps):
    run(
        DecisionMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_decision_agrees_with_the_model():
    """Code and model answer alike, and no answer breaks a law."""
    check_against_model(examples=40, steps=25)


@pytest.mark.slow
def test_decision_agrees_with_the_model_for_long():
    """The same over many more and longer lives."""
    check_against_model(examples=1500, steps=50)
