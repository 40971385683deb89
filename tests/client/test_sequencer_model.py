"""The sequencer against a partition that fails in every way it can, and a network that delays.

The client sends the numbers 0, 1, 2, ... Requests and answers are delivered late, on connections
that break, whole runs are killed and resumed from a saved state (the old run's requests still
arrive), a twin runs at the same time, and leaders change. The laws, checked after every step:

* the log never holds a number twice, and the numbers rise;
* an acknowledged number is at its offset, among the committed records;
* a number that failed as "not stored" is not in the log;
* numbers are acknowledged in order;
* in the end, when all goes well, everything that did not fail is stored.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from echoless.client.answers import PartitionProduceResponse
from echoless.client.sequenced_batch import BatchAcknowledged, Identity, SequencedBatch
from echoless.client.sequencer import Phase, Sequencer
from echoless.client.sequencer_actions import (
    AfterFailure,
    Ask,
    BackOff,
    Divided,
    Failed,
    NewId,
    Renumbered,
    Send,
    Start,
)
from echoless.protocol.errors import ErrorCode
from tests.client.model_partition import ModelPartition, Personality, Request

CIRCLE = 2**31
NOT_STORED = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CORRUPT_MESSAGE,
]
STEPS_TO_FINISH_MAX = 3000


@dataclass(eq=False)
class InFlight:
    """One request of one run on one connection."""

    run: Run
    connection: int
    batch: SequencedBatch
    request: Request
    leader_epoch: int
    answer: PartitionProduceResponse | None = None


@dataclass(eq=False)
class Run:
    """One life of the client: what it was given, and what became of it."""

    sequencer: Sequencer
    next_value: int
    connection: int = 0
    acknowledged: list[int] = field(default_factory=list)
    proven: list[int] = field(default_factory=list)
    """The acknowledged ones without those of which Kafka said no more than that its leader has them."""

    @property
    def first_unacknowledged(self) -> int:
        oldest = self.sequencer.oldest
        return self.next_value if oldest is None else oldest.payload[0]


class SequencerMachine(RuleBasedStateMachine):
    """Rules are what the world does; the client does what its sequencer says."""

    personality = Personality.ECHOLESS
    after_failure = AfterFailure.STOP
    has_damage = False
    """Whether records that were acknowledged may be lost, and single batches refused for good."""

    @initialize(
        window=st.integers(1, 6),
        in_flight_max=st.integers(1, 7),
        epoch=st.sampled_from([0, 2**15 - 2]),
        is_known=st.booleans(),
    )
    def begin(self, window, in_flight_max, epoch, is_known):
        self.partition = ModelPartition(self.personality, window)
        self.in_flight_max = in_flight_max
        self.requests: deque[InFlight] = deque()
        self.answers: deque[InFlight] = deque()
        self.ids = 7
        self.leader_epoch = 0
        """A request goes to who led when it was sent."""
        start = Start(identity=Identity(self.ids, epoch))
        self.saved = (start, 0)
        self.current = self._new_run(start, 0)
        self.failed: set[int] = set()
        self.certainly_absent: set[int] = set()
        self.lost: set[int] = set()
        if is_known:  # several batches may be in flight from the first step on
            self.give_records(1, 1)
            self.deliver_in_order(1)
            self.deliver_all_answers()

    def _new_run(self, start, value):
        sequencer = Sequencer(
            start, in_flight_max=self.in_flight_max, after_failure=self.after_failure
        )
        return Run(sequencer, value)

    # --- the client ---------------------------------------------------------------------------

    @precondition(lambda self: self.current.sequencer.phase is not Phase.STOPPED)
    @rule(count=st.integers(1, 4), batches=st.integers(1, 4))
    def give_records(self, count, batches):
        for _ in range(batches):
            self._give(count)
        self.work(steps=batches)

    def _give(self, count):
        run = self.current
        if run.sequencer.phase is not Phase.STOPPED:
            values = tuple(range(run.next_value, run.next_value + count))
            run.sequencer.add(count, values)
            run.next_value += count

    @rule(steps=st.integers(1, 8))
    def work(self, steps):
        for _ in range(steps):
            if not self._step(self.current):
                return

    def _step(self, run) -> bool:
        sequencer = run.sequencer
        match sequencer.next_step():
            case Send(batch):
                request = Request(batch.identity, batch.base_sequence, batch.payload)
                self.requests.append(
                    InFlight(run, run.connection, batch, request, self.leader_epoch)
                )
            case Ask(identity):
                found = self.partition.describe(identity.producer_id)
                self._perform(run, sequencer.on_found(found))
            case NewId():
                self.ids += 1
                self._perform(run, sequencer.on_new_id(Identity(self.ids, 0)))
            case None:
                return False
        return True

    def _perform(self, run, actions):
        for action in actions:
            match action:
                case BatchAcknowledged(batch, base_offset):
                    self._acknowledge(run, batch.payload, base_offset)
                case Failed(batch, _, _, may_be_stored):
                    self.failed.update(batch.payload)
                    if not may_be_stored and not run.sequencer._is_resumed:
                        self.certainly_absent.update(batch.payload)
                case Divided(batch, (first, second)):
                    first.payload = batch.payload[: first.record_count]
                    second.payload = batch.payload[first.record_count :]
                case Renumbered() | BackOff():
                    pass

    def _acknowledge(self, run, values, base_offset):
        assert not run.acknowledged or values[0] > run.acknowledged[-1], "out of order"
        if base_offset is not None or self.personality is Personality.ECHOLESS:
            run.proven.extend(values)
        run.acknowledged.extend(values)
        if base_offset is not None and not self.lost:
            end = base_offset + len(values)
            assert tuple(self.partition.values[base_offset:end]) == values, "not at its offset"

    @precondition(lambda self: self.after_failure is AfterFailure.STOP)
    @rule()
    def save(self):
        """Saves, as a copier does now and then, its position and the producer's numbers."""
        run = self.current
        sequencer = run.sequencer
        if sequencer.phase is Phase.STOPPED:
            return
        start = Start(
            identity=sequencer.identity,
            next_sequence=sequencer.first_unacknowledged,
            is_resumed=True,
            asks=True,
        )
        self.saved = (start, run.first_unacknowledged)

    @precondition(lambda self: self.after_failure is AfterFailure.STOP)
    @rule(is_twin=st.booleans())
    def resume(self, is_twin):
        """The run is killed and another begins; or it lives on, unseen, and both send (`is_twin`)."""
        start, value = self.saved
        start = Start(
            identity=start.identity,
            next_sequence=start.next_sequence,
            is_resumed=True,
            asks=True,
        )
        if is_twin:
            for _ in range(5):
                self._step(self.current)
        self.current = self._new_run(start, value)
        self.certainly_absent.clear()  # the new run sends them

    # --- the network and the broker ------------------------------------------------------------

    @precondition(lambda self: self.requests)
    @rule(pick=st.integers(0, 100), commits=st.booleans())
    def deliver_request(self, pick, commits):
        self._deliver(self._pick(self.requests, pick), commits=commits)

    @precondition(lambda self: self.requests)
    @rule(count=st.integers(1, 10))
    def deliver_in_order(self, count):
        for _ in range(min(count, len(self.requests))):
            self._deliver(self._pick(self.requests, 0), commits=True)

    @precondition(lambda self: self.requests)
    @rule(pick=st.integers(0, 100), code=st.sampled_from(NOT_STORED))
    def refuse_request(self, pick, code):
        flight = self._pick(self.requests, pick)
        flight.answer = PartitionProduceResponse(code)
        self.answers.append(flight)

    @precondition(lambda self: self.requests)
    @rule(pick=st.integers(0, 100))
    def refuse_as_too_large(self, pick):
        """Only what can still be divided: a lone record would fail for good."""
        flight = self._pick(self.requests, pick)
        if len(flight.request.values) > 1:
            flight.answer = PartitionProduceResponse(ErrorCode.MESSAGE_TOO_LARGE)
            self.answers.append(flight)
        else:
            self._deliver(flight, commits=True)

    def _pick(self, queue, pick):
        """Any connection's oldest: connections overtake each other, requests of one do not."""
        oldest = {}
        for flight in queue:
            oldest.setdefault((id(flight.run), flight.connection), flight)
        flight = list(oldest.values())[pick % len(oldest)]
        queue.remove(flight)
        return flight

    def _deliver(self, flight, *, commits):
        if flight.leader_epoch == self.leader_epoch:
            flight.answer = self.partition.produce(flight.request, commits=commits)
        else:
            flight.answer = PartitionProduceResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.answers.append(flight)

    @precondition(lambda self: self.answers)
    @rule(pick=st.integers(0, 100))
    def deliver_answer(self, pick):
        self._hand_over(self._pick(self.answers, pick))

    @precondition(lambda self: self.answers)
    @rule()
    def deliver_all_answers(self):
        while self.answers:
            self._hand_over(self._pick(self.answers, 0))

    def _hand_over(self, flight):
        run = flight.run
        if run is self.current and flight.connection == run.connection:
            self._perform(run, run.sequencer.on_answer(flight.batch, flight.answer))

    @precondition(lambda self: self.current.sequencer.in_flight)
    @rule()
    def break_connection(self):
        """Breaks it: requests stay in transit, their answers are lost."""
        run = self.current
        lost = [
            flight.batch
            for flight in (*self.answers, *self.requests)
            if flight.run is run and flight.connection == run.connection
        ]
        run.connection += 1
        for batch in lost:
            self._perform(run, run.sequencer.on_lost(batch))

    @precondition(lambda self: self.has_damage and self._may_be_overdue())
    @rule()
    def be_overdue(self):
        self._perform(self.current, self.current.sequencer.on_overdue())

    def _may_be_overdue(self):
        sequencer = self.current.sequencer
        return not sequencer.in_flight and not sequencer.is_idle

    @rule(kept=st.integers(0, 3))
    def fail_over(self, kept):
        self.leader_epoch += 1
        self.partition.fail_over(kept)

    @precondition(lambda self: self.has_damage and self.partition.batches)
    @rule(batch_count=st.integers(1, 3))
    def lose_records(self, batch_count):
        before = set(self.partition.values)
        self.leader_epoch += 1
        self.partition.lose_records(batch_count)
        self.lost |= before - set(self.partition.values)

    @precondition(lambda self: self.has_damage and self.requests)
    @rule(pick=st.integers(0, 100))
    def refuse_for_good(self, pick):
        flight = self._pick(self.requests, pick)
        flight.answer = PartitionProduceResponse(ErrorCode.INVALID_RECORD)
        self.answers.append(flight)

    # --- the laws --------------------------------------------------------------------------------

    @invariant()
    def log_rises(self):
        if hasattr(self, "partition"):
            values = self.partition.values
            assert values == sorted(set(values)), f"twice or out of order: {values}"

    @invariant()
    def absent_is_absent(self):
        if hasattr(self, "partition"):
            wrong = self.certainly_absent & set(self.partition.values)
            assert not wrong, f"said to be not stored: {sorted(wrong)}"

    def teardown(self):
        if hasattr(self, "partition"):
            self._finish()
            self.log_rises()
            self.absent_is_absent()
            self._check_acknowledged()

    def _finish(self):
        """Ends all faults."""
        run = self.current
        for _ in range(STEPS_TO_FINISH_MAX):
            if self.requests:
                self._deliver(self._pick(self.requests, 0), commits=True)
            elif self.answers:
                self._hand_over(self._pick(self.answers, 0))
            elif not self._step(run):
                break
        assert run.sequencer.is_idle, f"stuck in {run.sequencer.phase}"
        if run.sequencer.phase is not Phase.STOPPED and not self.failed and not self.lost:
            assert self.partition.values == list(range(len(self.partition.values)))
            assert len(self.partition.values) >= run.next_value

    def _check_acknowledged(self):
        missing = set(self.current.proven) - set(self.partition.committed_values) - self.lost
        assert not missing, f"acknowledged and not stored: {sorted(missing)}"


class Damage(SequencerMachine):
    has_damage = True


class GoingOn(Damage):
    after_failure = AfterFailure.NEW_EPOCH


class KafkaMachine(SequencerMachine):
    personality = Personality.KAFKA


@pytest.mark.slow
@pytest.mark.parametrize("machine", [SequencerMachine, KafkaMachine, Damage, GoingOn])
def test_no_record_twice_none_lost_in_order(machine):
    """Whatever network, leaders and kills do, the laws hold."""
    run(
        machine,
        settings=settings(
            max_examples=settings.default.max_examples // 2,
            stateful_step_count=60,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
