"""The numbers of one producer on one partition, and how each answer affects them. No I/O.

The shell (`partition_sender.py`) asks `next_step()` what to do, does it, and reports the outcome;
each event returns what the owner of the records has to do:

    add -> next_step -> Send(batch)  -> on_answer / on_lost / on_unsent -> [BatchAcknowledged, Failed ...]
                     -> Ask()        -> on_found
                     -> NewId()      -> on_new_id

A record's identity is its sequence: the n-th record given to the partition has the n-th sequence,
however the records are cut into batches. So sending the same records in the same order from the
same state gives the same numbers.

The rules:
1. Anything but success stops the sending (DRAINING) until every batch in flight has its outcome.
   Then (RETRYING) batches are resent one at a time, oldest first, with their old numbers.
2. An answer is a verdict only on a batch that was alone in flight and the oldest. For any other, it
   may be a consequence of an earlier failure, and the batch is resent first.
3. An out-of-order answer to such a batch is settled by asking the leader for its last sequence:
   the batch is stored, is stored in part, can be resent, or acknowledged records are gone.
4. A batch gets other numbers (a new epoch) only if it is proven that no copy under the old ones
   was or can be stored: every attempt was refused, or the batch comes after one that is missing.
5. Batches are acknowledged in the order of their sequences. A success confirms the batches skipped
   before it, since a log is committed from its start on.
6. Bad news about acknowledged records is believed only after it was reported several times: a broker
   that has just lost or gained the leadership may not know better.
7. The first batch of an identity is in flight alone: brokers before Kafka 4.5 let an unknown producer
   begin anywhere, so a second batch would be stored although the first was refused (KAFKA-15591).

Invariant: in every phase but STREAMING and DRAINING at most one batch is in flight.

The rules share one state, so they are in one file, although it is long; the two queues of batches and what
giving up does to them are in `outstanding.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

from echoless.client.answers import Meaning, PartitionProduceResponse
from echoless.client.outstanding import Outstanding
from echoless.client.sequenced_batch import (
    EPOCH_MAX,
    BatchAcknowledged,
    Identity,
    SequencedBatch,
    distance,
)
from echoless.client.sequencer_actions import (
    Action,
    AfterFailure,
    Ask,
    BackOff,
    Divided,
    Failed,
    Failure,
    LeaderEntry,
    NewId,
    Renumbered,
    Send,
    Start,
    Step,
)
from echoless.protocol.sequence import increment

__all__ = [
    "BAD_NEWS_MAX",
    "EPOCH_MAX",
    "IN_FLIGHT_MAX_DEFAULT",
    "LeaderEntry",
    "Identity",
    "Phase",
    "Sequencer",
]

IN_FLIGHT_MAX_DEFAULT: Final = 5
"""Batches in flight per partition; as many as Kafka's brokers remember."""

BAD_NEWS_MAX: Final = 3
"""Reports of the leader that acknowledged records are gone, before they are believed (rule 6)."""


class Phase(enum.Enum):
    STREAMING = "new batches are sent as long as the window has room"
    DRAINING = "nothing is sent until everything in flight has its outcome"
    RETRYING = "batches sent before are resent, one at a time"
    ASKING = "nothing is sent until the leader has reported its last sequence"
    AWAITING_ID = "nothing is sent until there is a new producer id"
    STOPPED = "nothing is sent any more"


_STREAMING: Final = Phase.STREAMING
"""Read once, because reading an enum's member takes longer than a name."""
_STORED: Final = Meaning.STORED


class Sequencer:
    """The numbers of one partition. Not safe for concurrent tasks."""

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
        """The failure that stopped the partition."""
        self.in_flight = 0
        self.is_held = False
        """Whether batches never sent have to wait; set by the owner. Others continue."""
        self._is_resumed = start.is_resumed
        self._is_unnamed = start.is_unnamed
        self._doubts_all = start.is_resumed and not start.asks
        """An earlier run may have sent the records that this one is given; how many is unknown."""
        self._bad_news = 0
        self._has_history = start.next_sequence != 0
        """Whether records of this identity were acknowledged."""
        self._outstanding = Outstanding()
        self._in_flight_max = in_flight_max
        self._after_failure = after_failure

    @property
    def first_unacknowledged(self) -> int:
        """The sequence at which a later run has to continue."""
        oldest = self.oldest
        return self.next_sequence if oldest is None else oldest.base_sequence

    @property
    def unacknowledged_count(self) -> int:
        """Records without an outcome."""
        return self._outstanding.record_count

    @property
    def oldest(self) -> SequencedBatch | None:
        return self._outstanding.oldest

    @property
    def has_sent(self) -> bool:
        """Whether a batch that was sent, or skipped, has no outcome yet."""
        return bool(self._outstanding.sent)

    @property
    def is_idle(self) -> bool:
        return self.oldest is None

    def add(self, record_count: int, payload: Any) -> SequencedBatch:
        """Numbers the next records of the partition. Not for a stopped one."""
        assert self.phase is not Phase.STOPPED, "the owner asks `failure` first"
        batch = SequencedBatch(self.identity, self.next_sequence, record_count, payload)
        batch.is_in_doubt = self._doubts_all
        self.next_sequence = increment(self.next_sequence, record_count)
        self._outstanding.waiting.append(batch)
        return batch

    # --- what to do -------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        """The next thing to do; None: wait for an event. A batch to send counts as in flight.

        No broker is asked for anything before there are records to send.
        """
        if self.phase is _STREAMING:  # the usual case
            return self._next_new()
        if self.is_idle:
            return None
        if self.phase is Phase.DRAINING and not self.in_flight:
            self.phase = Phase.RETRYING
        if self.phase is Phase.RETRYING and self._outstanding.to_retry() is None:
            self.phase = Phase.STREAMING
        match self.phase:
            case Phase.ASKING:
                return Ask(self.identity)
            case Phase.AWAITING_ID:
                return NewId()
            case Phase.RETRYING if not self.in_flight:
                return self._send(self._outstanding.to_retry())
            case Phase.STREAMING:
                return self._next_new()
        return None

    def _next_new(self) -> Send | None:
        """The next batch that was never sent, if one may be in flight; one only in the beginning (rule 7)."""
        outstanding, in_flight = self._outstanding, self.in_flight
        if not outstanding.waiting or self.is_held or in_flight >= self._in_flight_max:
            return None
        if in_flight and not self._has_history and outstanding.stored_through is None:
            return None
        return self._send(outstanding.take_waiting())

    def _send(self, batch: SequencedBatch | None) -> Send | None:
        if batch is None:
            return None
        batch.is_in_flight = True
        batch.attempts += 1
        self.in_flight += 1
        return Send(batch)

    # --- what happened to a request ------------------------------------------------------------

    def on_answer(
        self, batch: SequencedBatch, answer: PartitionProduceResponse
    ) -> Sequence[Action]:
        """Handles the broker's answer to a batch in flight."""
        is_verdict = self._land(batch)
        meaning = answer.meaning
        if meaning is _STORED:
            is_duplicate = batch.is_repeat(answer.log_append_time, is_resumed=self._is_resumed)
            base_offset = answer.base_offset if answer.base_offset >= 0 else None
            batch.stored = BatchAcknowledged(batch, base_offset, is_duplicate)
            return self._settle()
        if meaning is Meaning.REPEAT:
            batch.stored = BatchAcknowledged(batch, None, True)
            return self._settle()
        batch.is_in_doubt |= answer.leaves_doubt
        if is_verdict:
            return self._judge(batch, meaning, answer)
        self.phase = Phase.DRAINING
        is_elsewhere = meaning is Meaning.AGAIN_ELSEWHERE
        return [BackOff(is_elsewhere)] if is_elsewhere or meaning is Meaning.AGAIN else []

    def on_lost(self, batch: SequencedBatch) -> Sequence[Action]:
        """Handles a request that went out and will get no answer: the batch may be stored."""
        self._land(batch)
        batch.is_in_doubt = True
        self.phase = Phase.DRAINING
        return [BackOff(elsewhere=True)]

    def on_unsent(self, batch: SequencedBatch) -> Sequence[Action]:
        """Handles a request of which not a byte went out."""
        self._land(batch)
        batch.attempts -= 1
        self.phase = Phase.DRAINING
        return [BackOff(elsewhere=True)]

    def on_overdue(self, failure: Failure = Failure.TIMED_OUT) -> Sequence[Action]:
        """Fails the oldest batch, whose time is over. Not while something is in flight."""
        assert not self.in_flight, "wait for the outcome, it comes by the request timeout"
        batch = self.oldest
        if batch is None or self.phase is Phase.STOPPED:
            return []
        if any(later.stored is not None for later in self._outstanding.sent):
            batch.stored = BatchAcknowledged(batch, None, None)  # rule 5
            return self._settle()
        return self._give_up(batch, failure, None)

    def _land(self, batch: SequencedBatch) -> bool:
        """Takes the batch out of flight; returns whether its answer is a verdict (rule 2)."""
        assert batch.is_in_flight
        is_verdict = self.in_flight == 1 and self._outstanding.oldest_open() is batch
        batch.is_in_flight = False
        self.in_flight -= 1
        return is_verdict

    def _settle(self) -> Sequence[Action]:
        settled = self._outstanding.settle()
        self._has_history |= bool(settled)
        return settled

    # --- verdicts ------------------------------------------------------------------------------

    def _judge(
        self, batch: SequencedBatch, meaning: Meaning, answer: PartitionProduceResponse
    ) -> Sequence[Action]:
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

    def on_found(self, found: LeaderEntry | None) -> Sequence[Action]:
        """Handles the leader's entry for this producer; None if it has none."""
        assert self.phase is Phase.ASKING
        for batch in self._outstanding.sent:
            batch.is_skipped = False
        if found is not None and found.producer_epoch > self.identity.producer_epoch:
            return self._on_bad_news(Failure.FENCED)
        if (
            found is None
            or found.producer_epoch < self.identity.producer_epoch
            or found.last_sequence < 0
        ):
            return self._on_nothing_found(found)
        if self._is_unnamed:
            head = self._head()
            head.is_in_doubt = True
            return self._stop(Failed(head, Failure.UNNAMED_TOPIC, None, may_be_stored=True))
        ahead = distance(found.last_sequence, self.first_unacknowledged) + 1
        if ahead < 0:
            return self._on_bad_news(Failure.RECORDS_LOST)
        self._become_retrying(found.last_sequence)
        return self._on_records_found(found.last_sequence, ahead)

    def _become_retrying(self, stored_through: int | None) -> None:
        self._is_unnamed = False
        self.phase = Phase.RETRYING
        self._bad_news = 0
        self._outstanding.stored_through = stored_through

    def _on_nothing_found(self, found: LeaderEntry | None) -> Sequence[Action]:
        if self._has_history:
            return self._on_bad_news(Failure.FORGOTTEN if found is None else Failure.RECORDS_LOST)
        self._become_retrying(None)
        return [BackOff(elsewhere=True)] if self._outstanding.sent else []

    def _on_bad_news(self, failure: Failure) -> Sequence[Action]:
        self._bad_news += 1
        if self._bad_news < BAD_NEWS_MAX:
            return [BackOff(elsewhere=True)]
        # A gap before the batch keeps every copy of it out of the log.
        is_proven_absent = failure is Failure.RECORDS_LOST
        return self._give_up(self._head(), failure, None, is_proven_absent=is_proven_absent)

    def on_unanswerable(self, answer: PartitionProduceResponse) -> Sequence[Action]:
        """Handles a leader that will never report its last sequence."""
        assert self.phase is Phase.ASKING
        return self._give_up(self._head(), Failure.UNANSWERED, answer)

    def on_no_id(self, answer: PartitionProduceResponse) -> Sequence[Action]:
        """Handles that there is no producer id for records never sent.

        Not while something is outstanding.
        """
        assert not self._outstanding.sent
        return self._give_up(self._head(), Failure.REFUSED, answer)

    def on_id_refused(self, answer: PartitionProduceResponse) -> Sequence[Action]:
        """Handles that there will be no other producer id: nothing can be sent any more."""
        assert self.phase is Phase.AWAITING_ID
        head = self._head()
        return self._stop(Failed(head, Failure.REFUSED, answer, head.is_in_doubt))

    def _head(self) -> SequencedBatch:
        oldest = self.oldest
        assert oldest is not None, "questions are asked for batches"
        return oldest

    def _on_records_found(self, last_sequence: int, ahead: int) -> Sequence[Action]:
        """Handles a leader that has the first `ahead` of the unacknowledged records."""
        oldest = self._outstanding.to_retry()
        if oldest is None:
            return []
        if ahead == 0:
            return [BackOff(elsewhere=False)]
        if self._outstanding.is_known_stored(oldest):
            # Nothing comes after it that could confirm it, and it is too old to be repeated.
            oldest.stored = BatchAcknowledged(oldest, None, True)
            return self._settle()
        stored_count = distance(last_sequence, oldest.base_sequence) + 1
        return [self._divide(oldest, stored_count)] if stored_count > 0 else []

    def _divide(self, batch: SequencedBatch, count: int) -> Divided:
        """Divides the batch into its first `count` records and the rest."""
        parts = batch.divided(count)
        self._outstanding.replace(batch, parts)
        return Divided(batch, parts)

    # --- giving up -----------------------------------------------------------------------------

    def _give_up(
        self,
        batch: SequencedBatch,
        failure: Failure,
        answer: PartitionProduceResponse | None,
        *,
        is_proven_absent: bool = False,
    ) -> Sequence[Action]:
        """Fails the batch and all that follow, or renumbers those (`AfterFailure`)."""
        assert not self.in_flight
        failed = Failed(batch, failure, answer, batch.is_in_doubt and not is_proven_absent)
        if self._after_failure is AfterFailure.STOP:
            return self._stop(failed)
        return self._go_on_without(failed)

    def _stop(self, failed: Failed) -> Sequence[Action]:
        self.next_sequence = self.first_unacknowledged
        self.failure = failed
        self.phase = Phase.STOPPED
        return self._outstanding.fail_all(failed)

    def _go_on_without(self, failed: Failed) -> Sequence[Action]:
        """Renumbers (rule 4): after a batch that is certainly missing, none can be stored."""
        failures = self._outstanding.fail_stored(failed)
        if failed.failure is Failure.FENCED or self.identity.producer_epoch == EPOCH_MAX:
            self.phase = Phase.AWAITING_ID
            return failures
        producer_id, epoch = self.identity
        return [*failures, *self._renumber(Identity(producer_id, epoch + 1))]

    def on_new_id(self, identity: Identity) -> Sequence[Action]:
        """Takes a producer id that no other producer has."""
        assert self.phase is Phase.AWAITING_ID
        return self._renumber(identity)

    def begin_anew(self, identity: Identity) -> Sequence[Action]:
        """Puts records never sent under another identity, from 0.

        Not while something is outstanding.
        """
        assert not self._outstanding.sent, "a resent batch would be stored after its successors"
        assert not self._is_resumed, "an earlier run may have sent what is waiting here"
        return self._renumber(identity)

    def _renumber(self, identity: Identity) -> Sequence[Action]:
        self.identity = identity
        self.next_sequence = self._outstanding.renumber(identity)
        self._has_history = False
        self._is_resumed = self._doubts_all = False
        self._bad_news = 0
        self.phase = Phase.STREAMING
        return [Renumbered(batch) for batch in self._outstanding.waiting]
