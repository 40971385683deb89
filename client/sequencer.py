"""The numbers of one producer on one partition, and what each answer means for them. No I/O.

The shell (`partition_sender.py`) asks `next_step()` what to do, does it, and tells what came of it;
events return what the owner of the records has to do about it:

    add -> next_step -> Send(batch)  -> on_answer / on_lost / on_unsent -> [Acknowledged, Failed ...]
                     -> Ask()        -> on_found
                     -> NewId()      -> on_new_id

A record's identity is its sequence: the n-th record given to the partition has the n-th sequence,
however the records are cut into batches. So whoever sends the same records in the same order from
the same state sends the same numbers.

The rules:
1. Anything but success stops the sending (DRAINING) until every batch in flight has its outcome.
   Then (RETRYING) batches go again one at a time, the oldest first, with their old numbers.
2. An answer is a verdict only on a batch that was alone in flight and the oldest. For any other, it
   may be a consequence of an earlier failure, and the batch is sent again first.
3. An out-of-order answer to such a batch is settled by asking the leader for its last sequence:
   the batch is stored, is stored in part, can be sent again, or acknowledged records are gone.
4. A batch gets other numbers (a new epoch) only where it is proven that no copy under the old ones
   was or can be stored: every attempt was refused, or the batch lies behind one that is missing.
5. Batches are acknowledged in the order of their sequences. A success confirms what was skipped
   before it, since a log is committed from its start on.
6. Bad news about acknowledged records is believed when it was told several times: a broker that has
   just lost or gained the leadership may not know better.
7. The first batch of an identity is in flight alone: brokers before Kafka 4.5 let an unknown producer
   begin anywhere, so a second batch would be stored although the first was refused (KAFKA-15591).

Invariant: the sequences in `_sent` and then `_waiting` follow each other without a gap and end before `next_sequence`.
Invariant: in every phase but STREAMING and DRAINING at most one batch is in flight.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from client.answers import Answer, Meaning
from protocol.sequence import increment

IN_FLIGHT_MAX_DEFAULT: Final = 5
"""Batches in flight for a partition; Kafka's brokers remember so many."""
EPOCH_MAX: Final = 2**15 - 1

BAD_NEWS_MAX: Final = 3
"""How often the leader has to say that acknowledged records are gone (rule 6)."""

_HALF_CIRCLE: Final = 2**30


class Identity(NamedTuple):
    """Under which name the records of a partition are numbered."""

    producer_id: int
    producer_epoch: int


class AfterFailure(enum.StrEnum):
    """What a partition does when a batch has failed for good."""

    STOP = "stop"
    """Nothing more is sent: a later run resumes at the failed record, under the same numbers."""
    NEW_EPOCH = "new_epoch"
    """Later records go on under a new epoch, without the failed ones."""


class Phase(enum.Enum):
    STREAMING = "new batches are sent as long as the window has room"
    DRAINING = "nothing is sent until everything in flight has its outcome"
    RETRYING = "what was sent before goes again, one at a time"
    ASKING = "nothing is sent until the leader has told its last sequence"
    AWAITING_ID = "nothing is sent until there is a new producer id"
    STOPPED = "nothing is sent any more"


class Failure(enum.Enum):
    """Why a batch failed for good, where the answer's code does not say it."""

    REFUSED = "the broker refused it"
    TIMED_OUT = "it was not acknowledged in time"
    LEASE_OVER = "the lease of its producer id is over, and brokers may forget the id"
    FENCED = "a newer epoch of this producer id is in use"
    RECORDS_LOST = "the partition has lost records of this producer that were acknowledged"
    FORGOTTEN = "the partition does not know this producer any more"
    UNANSWERED = "the leader does not tell the last sequence that it has"
    STOPPED = "an earlier batch of the partition has failed"


@dataclass(slots=True, eq=False)
class SequencedBatch:
    """Consecutive records under consecutive numbers. Identity and numbers change by rule 4 only."""

    identity: Identity
    base_sequence: int
    record_count: int
    payload: Any
    """The owner's; not looked at here."""
    attempts: int = 0
    is_in_flight: bool = False
    is_in_doubt: bool = False
    """Whether some attempt may have stored it. Only grows, until the numbers change."""
    is_skipped: bool = False
    """Not sent, because the leader has it; an acknowledgement behind it will confirm that."""
    stored: Acknowledged | None = None
    """Its outcome, while an earlier batch still has none."""

    @property
    def last_sequence(self) -> int:
        return increment(self.base_sequence, self.record_count - 1)


class Acknowledged(NamedTuple):
    batch: SequencedBatch
    base_offset: int | None
    is_duplicate: bool | None
    """None where it cannot be known."""


class Failed(NamedTuple):
    batch: SequencedBatch
    failure: Failure
    answer: Answer | None
    may_be_stored: bool


class Divided(NamedTuple):
    """`batch` is replaced by `parts`, whose payloads the owner fills from it."""

    batch: SequencedBatch
    parts: tuple[SequencedBatch, SequencedBatch]


class Renumbered(NamedTuple):
    """The batch has other numbers now: what was built with the old ones is worthless."""

    batch: SequencedBatch


class BackOff(NamedTuple):
    """Let some time pass before the next step; `elsewhere`: find out who leads."""

    elsewhere: bool


Action = Acknowledged | Failed | Divided | Renumbered | BackOff


class Send(NamedTuple):
    batch: SequencedBatch


class Ask(NamedTuple):
    """Ask the leader for the entry of `identity.producer_id`."""

    identity: Identity


class NewId(NamedTuple):
    """Get a new producer id."""


Step = Send | Ask | NewId


class Found(NamedTuple):
    """What the leader remembers of the producer id on this partition."""

    producer_epoch: int
    last_sequence: int
    """-1: no batch of this epoch."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Start:
    """Where a partition begins. `is_resumed`: an earlier run may have gone on from here."""

    identity: Identity
    next_sequence: int = 0
    is_resumed: bool = False
    asks: bool = False
    """Whether the leader's last sequence is asked for before anything is sent."""


class Sequencer:
    """One partition. Not for several tasks at once."""

    def __init__(
        self,
        start: Start,
        *,
        in_flight_max: int = IN_FLIGHT_MAX_DEFAULT,
        after_failure: AfterFailure = AfterFailure.STOP,
    ) -> None:
        self.identity = start.identity
        self.next_sequence = start.next_sequence
        self.phase = Phase.ASKING if start.asks else Phase.STREAMING
        self.failure: Failed | None = None
        """What stopped the partition."""
        self.in_flight = 0
        self.is_held = False
        """Whether batches that were never sent have to wait; the owner sets it. What was sent goes on."""
        self._is_resumed = start.is_resumed
        self._doubts_all = start.is_resumed and not start.asks
        """An earlier run may have sent what this one is given, and nobody knows how far it came."""
        self._bad_news = 0
        self._has_history = start.next_sequence != 0
        """Whether records of this identity were acknowledged."""
        self._stored_through: int | None = None
        """The leader's last sequence, when it was last asked."""
        self._sent: deque[SequencedBatch] = deque()
        """Sent or skipped, without an outcome that could be told; oldest first."""
        self._waiting: deque[SequencedBatch] = deque()
        """Never sent."""
        self._in_flight_max = in_flight_max
        self._after_failure = after_failure

    @property
    def first_unacknowledged(self) -> int:
        """The sequence at which a later run has to go on."""
        oldest = self.oldest
        return self.next_sequence if oldest is None else oldest.base_sequence

    @property
    def unacknowledged_count(self) -> int:
        """Records without an outcome."""
        return sum(batch.record_count for queue in self._queues() for batch in queue)

    @property
    def oldest(self) -> SequencedBatch | None:
        return next((queue[0] for queue in self._queues() if queue), None)

    @property
    def has_sent(self) -> bool:
        """Whether something that was sent, or skipped, has no outcome yet."""
        return bool(self._sent)

    @property
    def is_idle(self) -> bool:
        return not self._sent and not self._waiting

    def add(self, record_count: int, payload: Any) -> SequencedBatch:
        """The next records of the partition. Not for a stopped one."""
        assert self.phase is not Phase.STOPPED, "the owner asks `failure` first"
        batch = SequencedBatch(self.identity, self.next_sequence, record_count, payload)
        batch.is_in_doubt = self._doubts_all
        self.next_sequence = increment(self.next_sequence, record_count)
        self._waiting.append(batch)
        return batch

    # --- what to do -------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        """What is to be done now; None: wait for an event. A batch to send counts as in flight.

        Nobody is asked for anything before there are records to send.
        """
        if self.is_idle:
            return None
        if self.phase is Phase.DRAINING and not self.in_flight:
            self.phase = Phase.RETRYING
        if self.phase is Phase.RETRYING and self._to_retry() is None:
            self.phase = Phase.STREAMING
        match self.phase:
            case Phase.ASKING:
                return Ask(self.identity)
            case Phase.AWAITING_ID:
                return NewId()
            case Phase.RETRYING if not self.in_flight:
                return self._send(self._to_retry())
            case Phase.STREAMING if self.in_flight < self._room() and not self.is_held:
                return self._send(self._take_waiting())
        return None

    def _room(self) -> int:
        """Rule 7."""
        is_known_there = self._has_history or self._stored_through is not None
        return self._in_flight_max if is_known_there else 1

    def _send(self, batch: SequencedBatch | None) -> Send | None:
        if batch is None:
            return None
        batch.is_in_flight = True
        batch.attempts += 1
        self.in_flight += 1
        return Send(batch)

    def _to_retry(self) -> SequencedBatch | None:
        """The oldest batch that has to go again; marks those that can be skipped.

        A batch is skipped only before one whose acknowledgement is still to come, and confirms it.
        """
        still_open = [b for b in self._sent if b.stored is None and not b.is_skipped]
        for batch in still_open:
            if self._is_known_stored(batch) and (self._waiting or batch is not still_open[-1]):
                batch.is_skipped = True
            else:
                return batch
        return None

    def _take_waiting(self) -> SequencedBatch | None:
        """The next new batch; it stands in `_sent` from here on."""
        while self._waiting:
            batch = self._waiting.popleft()
            self._sent.append(batch)
            if self._waiting and self._is_known_stored(batch):
                batch.is_skipped = True
                continue
            return batch
        return None

    def _is_known_stored(self, batch: SequencedBatch) -> bool:
        through = self._stored_through
        return through is not None and _distance(through, batch.last_sequence) >= 0

    # --- what happened to a request ------------------------------------------------------------

    def on_answer(self, batch: SequencedBatch, answer: Answer) -> list[Action]:
        """The broker's answer to a batch in flight."""
        is_verdict = self._land(batch)
        meaning = answer.meaning
        if meaning is Meaning.STORED:
            is_duplicate = self._is_duplicate(batch, answer)
            batch.stored = Acknowledged(batch, _known(answer.base_offset), is_duplicate)
            return self._settle()
        if meaning is Meaning.REPEAT:
            batch.stored = Acknowledged(batch, None, True)
            return self._settle()
        batch.is_in_doubt |= answer.leaves_doubt
        if is_verdict:
            return self._judge(batch, meaning, answer)
        self.phase = Phase.DRAINING
        is_elsewhere = meaning is Meaning.AGAIN_ELSEWHERE
        return [BackOff(is_elsewhere)] if is_elsewhere or meaning is Meaning.AGAIN else []

    def on_lost(self, batch: SequencedBatch) -> list[Action]:
        """The request went out and no answer will come: the batch may be stored."""
        self._land(batch)
        batch.is_in_doubt = True
        self.phase = Phase.DRAINING
        return [BackOff(elsewhere=True)]

    def on_unsent(self, batch: SequencedBatch) -> list[Action]:
        """Not a byte of the request went out."""
        self._land(batch)
        batch.attempts -= 1
        self.phase = Phase.DRAINING
        return [BackOff(elsewhere=True)]

    def on_overdue(self, failure: Failure = Failure.TIMED_OUT) -> list[Action]:
        """The oldest batch has had its time. Not while something is in flight."""
        assert not self.in_flight, "wait for the outcome, it comes by the request timeout"
        batch = self.oldest
        if batch is None or self.phase is Phase.STOPPED:
            return []
        if any(later.stored is not None for later in self._sent):
            batch.stored = Acknowledged(batch, None, None)  # rule 5
            return self._settle()
        return self._give_up(batch, failure, None)

    def _land(self, batch: SequencedBatch) -> bool:
        """Takes the batch out of flight; whether what came back is a verdict (rule 2)."""
        assert batch.is_in_flight
        is_verdict = self.in_flight == 1 and self._oldest_open() is batch
        batch.is_in_flight = False
        self.in_flight -= 1
        return is_verdict

    def _oldest_open(self) -> SequencedBatch | None:
        return next((b for b in self._sent if b.stored is None and not b.is_skipped), None)

    def _is_duplicate(self, batch: SequencedBatch, answer: Answer) -> bool | None:
        """A first attempt under fresh numbers cannot be one; a fresh append has no time of its own."""
        if batch.attempts == 1 and not self._is_resumed:
            return False
        max_timestamp: int = getattr(batch.payload, "max_timestamp", -1)
        if max_timestamp < 0:
            return None
        if answer.log_append_time < 0:
            return False
        return True if answer.log_append_time == max_timestamp else None

    def _settle(self) -> list[Action]:
        """Acknowledges from the oldest on, as far as outcomes are known without a gap."""
        confirmed = max(
            (index for index, batch in enumerate(self._sent) if batch.stored), default=-1
        )
        actions: list[Action] = []
        for _ in range(confirmed + 1):
            batch = self._sent[0]
            outcome = batch.stored
            if outcome is None and batch.is_skipped:
                outcome = Acknowledged(batch, None, True)
            if outcome is None:
                break
            self._sent.popleft()
            self._has_history = True
            actions.append(outcome)
        return actions

    # --- verdicts ------------------------------------------------------------------------------

    def _judge(self, batch: SequencedBatch, meaning: Meaning, answer: Answer) -> list[Action]:
        self.phase = Phase.RETRYING
        match meaning:
            case Meaning.AGAIN | Meaning.AGAIN_ELSEWHERE:
                return [BackOff(meaning is Meaning.AGAIN_ELSEWHERE)]
            case Meaning.OUT_OF_ORDER | Meaning.UNKNOWN_PRODUCER:
                self.phase = Phase.ASKING
                return []
            case Meaning.FENCED:
                return self._give_up(batch, Failure.FENCED, answer)
            case Meaning.TOO_LARGE if batch.record_count > 1:
                return [self._divide(batch, batch.record_count // 2)]
        return self._give_up(batch, Failure.REFUSED, answer)

    def on_found(self, found: Found | None) -> list[Action]:
        """The leader's entry for this producer; None: it has none."""
        assert self.phase is Phase.ASKING
        for batch in self._sent:
            batch.is_skipped = False
        if found is not None and found.producer_epoch > self.identity.producer_epoch:
            return self._on_bad_news(Failure.FENCED)
        if (
            found is None
            or found.producer_epoch < self.identity.producer_epoch
            or found.last_sequence < 0
        ):
            return self._on_nothing_found(found)
        ahead = _distance(found.last_sequence, self.first_unacknowledged) + 1
        if ahead < 0:
            return self._on_bad_news(Failure.RECORDS_LOST)
        self._become_retrying(found.last_sequence)
        return self._on_records_found(found.last_sequence, ahead)

    def _become_retrying(self, stored_through: int | None) -> None:
        self.phase = Phase.RETRYING
        self._bad_news = 0
        self._stored_through = stored_through

    def _on_nothing_found(self, found: Found | None) -> list[Action]:
        if self._has_history:
            return self._on_bad_news(Failure.FORGOTTEN if found is None else Failure.RECORDS_LOST)
        self._become_retrying(None)
        return [BackOff(elsewhere=True)] if self._sent else []

    def _on_bad_news(self, failure: Failure) -> list[Action]:
        self._bad_news += 1
        if self._bad_news < BAD_NEWS_MAX:
            return [BackOff(elsewhere=True)]
        # A gap before the batch keeps every copy of it out of the log.
        is_proven_absent = failure is Failure.RECORDS_LOST
        return self._give_up(self._head(), failure, None, is_proven_absent=is_proven_absent)

    def on_unanswerable(self, answer: Answer) -> list[Action]:
        """The leader will never tell its last sequence."""
        assert self.phase is Phase.ASKING
        return self._give_up(self._head(), Failure.UNANSWERED, answer)

    def on_no_id(self, answer: Answer) -> list[Action]:
        """There will be no producer id for what was never sent. Not while something is outstanding."""
        assert not self._sent
        return self._give_up(self._head(), Failure.REFUSED, answer)

    def _head(self) -> SequencedBatch:
        oldest = self.oldest
        assert oldest is not None, "questions are asked for batches"
        return oldest

    def _on_records_found(self, last_sequence: int, ahead: int) -> list[Action]:
        """The leader has the first `ahead` of the records that are not acknowledged."""
        oldest = self._to_retry()
        if oldest is None:
            return []
        if ahead == 0:
            return [BackOff(elsewhere=False)]
        if self._is_known_stored(oldest):
            # Nothing comes behind it that could confirm it, and it is too old to be repeated.
            oldest.stored = Acknowledged(oldest, None, True)
            return self._settle()
        stored_count = _distance(last_sequence, oldest.base_sequence) + 1
        return [self._divide(oldest, stored_count)] if stored_count > 0 else []

    def _divide(self, batch: SequencedBatch, count: int) -> Divided:
        """Replaces the batch by its first `count` records and the rest, under the same numbers."""
        first = replace(batch, record_count=count, payload=None)
        second = replace(
            batch,
            base_sequence=increment(batch.base_sequence, count),
            record_count=batch.record_count - count,
            payload=None,
        )
        index = self._sent.index(batch)
        self._sent[index] = first
        self._sent.insert(index + 1, second)
        return Divided(batch, (first, second))

    # --- giving up -----------------------------------------------------------------------------

    def _give_up(
        self,
        batch: SequencedBatch,
        failure: Failure,
        answer: Answer | None,
        *,
        is_proven_absent: bool = False,
    ) -> list[Action]:
        """Fails the batch, and by `AfterFailure` all that follow, or goes on under other numbers."""
        assert not self.in_flight
        failed = Failed(batch, failure, answer, batch.is_in_doubt and not is_proven_absent)
        if self._after_failure is AfterFailure.STOP:
            return self._stop(failed)
        return self._go_on_without(failed)

    def _stop(self, failed: Failed) -> list[Action]:
        actions: list[Action] = [failed]
        for batch in (*self._sent, *self._waiting):
            if batch is not failed.batch:
                may_be_stored = self._outlives(batch, failed)
                actions.append(Failed(batch, Failure.STOPPED, failed.answer, may_be_stored))
        self.next_sequence = self.first_unacknowledged
        self._sent.clear()
        self._waiting.clear()
        self.failure = failed
        self.phase = Phase.STOPPED
        return actions

    def _outlives(self, batch: SequencedBatch, failed: Failed) -> bool:
        """Whether a batch may be stored although the older `failed` one was given up."""
        is_known = batch.stored is not None or batch.is_skipped
        return is_known or (batch.is_in_doubt and failed.may_be_stored)

    def _go_on_without(self, failed: Failed) -> list[Action]:
        """Rule 4: behind a batch that is certainly missing, nothing can have been stored."""
        actions: list[Action] = [failed]
        kept: deque[SequencedBatch] = deque()
        for batch in (*self._sent, *self._waiting):
            if batch is failed.batch:
                continue
            if self._outlives(batch, failed):
                actions.append(Failed(batch, Failure.STOPPED, failed.answer, may_be_stored=True))
            else:
                kept.append(batch)
        self._sent.clear()
        self._waiting = kept
        if failed.failure is Failure.FENCED or self.identity.producer_epoch == EPOCH_MAX:
            self.phase = Phase.AWAITING_ID
            return actions
        producer_id, epoch = self.identity
        return actions + self._renumber(Identity(producer_id, epoch + 1))

    def on_new_id(self, identity: Identity) -> list[Action]:
        """A producer id that nobody else has."""
        assert self.phase is Phase.AWAITING_ID
        return self._renumber(identity)

    def begin_anew(self, identity: Identity) -> list[Action]:
        """What was never sent goes under another identity, from 0. Not while something is outstanding."""
        assert not self._sent, "a batch that goes again would be stored behind its successors"
        assert not self._is_resumed, "an earlier run may have sent what is waiting here"
        return self._renumber(identity)

    def _renumber(self, identity: Identity) -> list[Action]:
        self.identity = identity
        self.next_sequence = 0
        self._has_history = False
        self._is_resumed = self._doubts_all = False
        self._stored_through = None
        self._bad_news = 0
        self.phase = Phase.STREAMING
        for batch in self._waiting:
            batch.identity = identity
            batch.base_sequence = self.next_sequence
            batch.attempts = 0
            batch.is_in_doubt = False
            self.next_sequence = increment(self.next_sequence, batch.record_count)
        return [Renumbered(batch) for batch in self._waiting]

    def _queues(self) -> tuple[deque[SequencedBatch], deque[SequencedBatch]]:
        return self._sent, self._waiting


def _distance(sequence: int, other: int) -> int:
    """How far `sequence` lies behind `other` on the circle of 2**31; negative: before it."""
    return (sequence - other + _HALF_CIRCLE) % (2 * _HALF_CIRCLE) - _HALF_CIRCLE


def _known(base_offset: int) -> int | None:
    return base_offset if base_offset >= 0 else None
