"""Decisions about the batches of idempotent producers, with their reasons.

Produce reports every outcome here, so that `/metrics`, the log and `/decisions` cannot disagree.
Memory is bounded: rings of `capacity` events, one for appended batches, one for the interesting
rest, one for steps of transactions and one for injected faults, so that a busy producer's appends never push out the one refusal
that someone is looking for. Each follower has a bounded queue (`stream.py`).

A spurious 45 makes clients store records twice, so each one is counted, kept for `/decisions` and
logged with the window it was judged by, and so is a duplicate whose bytes differ; if one address
causes many, the log gets the first hundred and then one a second (`limited_log.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from echoless.broker.decisions.events import (
    APPEND,
    DIVERGENT_DUPLICATE,
    DUPLICATE,
    REJECT,
    BatchDecision,
    Event,
    FaultHit,
    OutcomeFields,
    RequestSeen,
    Skipped,
    TransactionStep,
    Window,
)
from echoless.broker.decisions.pace import Pace
from echoless.broker.decisions.stream import EVERYTHING, DecisionStream, Selection
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metrics import Metrics
from echoless.broker.network.request import Request
from echoless.protocol.dedup import Duplicate, OtherRecords, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader
from echoless.storage.appended import Appended

if TYPE_CHECKING:
    from echoless.broker.partitions.partition import Partition

CAPACITY_DEFAULT: Final = 1000
PRODUCERS_MAX: Final = 10_000
"""Producers whose latest outcomes are kept: about 5 MB if there are so many."""
CLIENT_ID_MAX: Final = 255
"""Characters of a client id that are kept: requests have room for 32 KB."""


class Note(Protocol):
    """`Decisions.record_transaction`."""

    def __call__(
        self, make: Callable[..., TransactionStep], *values: Any, is_large: bool = False
    ) -> None: ...


_RecordedStep = tuple[int, Callable[..., TransactionStep], tuple[Any, ...]]
"""The number of a step, what makes it, and of what."""

limited: Final = LimitedLog(logging.getLogger(__name__))


class Decisions:
    """The latest events of one broker. Single owner: the event loop."""

    __slots__ = (
        *("_appended", "_faults", "_latest", "_metrics", "_number", "_others", "_pace"),
        *("_streams", "_transactions", "_offered", "_unoffered"),
        *("is_followed", "wants_requests", "wants_records"),
    )

    def __init__(self, metrics: Metrics, capacity: int = CAPACITY_DEFAULT) -> None:
        self._metrics = metrics
        self._number = 0
        self._appended: deque[OutcomeFields | BatchDecision] = deque(maxlen=capacity)
        self._others: deque[BatchDecision] = deque(maxlen=capacity)
        self._faults: deque[FaultHit] = deque(maxlen=capacity)
        self._transactions: deque[_RecordedStep] = deque(maxlen=capacity)
        self._latest: dict[int, OutcomeFields] = {}
        """The start of each producer's latest outcome, whatever became of the batch: who sent it, and where."""
        self._streams: tuple[DecisionStream, ...] = ()
        self._offered = 0
        """Number of events that were offered to followers."""
        self._pace: Pace | None = None
        """Bounds the appends that are shown, while only consoles follow."""
        self._unoffered = 0
        """Events before the followers, and those skipped so far: `_number` less `_offered` at that time."""
        self.is_followed = False
        """Whether the next append is shown to anyone, who needs the window before it, which costs a look-up."""
        self.wants_requests = False
        """Whether anyone wants to see each request, which has to be read for that."""
        self.wants_records = False
        """Whether anyone wants the records in them."""

    def record(
        self,
        request: Request,
        partition: Partition,
        header: BatchHeader,
        result: Appended | Duplicate | Reject,
        now_ms: int,
        *,
        window_before: Window | None = None,
    ) -> None:
        """Keeps one outcome (dropping the oldest of its ring if that is full), counts and logs it.

        `window_before` is only needed for an appended batch, and only while `is_followed`.
        """
        self._number = number = self._number + 1
        peer, client_id = request.peer, request.client_id
        if client_id is not None and len(client_id) > CLIENT_ID_MAX:
            client_id = client_id[:CLIENT_ID_MAX]
        base_offset = result.base_offset if type(result) is Appended else -1
        # A plain tuple: an Outcome takes four times as long, and is made only when someone looks.
        fields = (
            number,
            now_ms,
            partition.topic,
            partition.index,
            header,
            client_id,
            peer.address,
            peer.principal,
            peer.connection_id,
            request.correlation_id,
            APPEND,
            base_offset,
        )
        latest = self._latest
        latest[header.producer_id] = fields
        if (
            len(latest) > PRODUCERS_MAX
        ):  # the one that came first; a busy one is back with its next batch
            del latest[next(iter(latest))]
        if base_offset >= 0 and not self.is_followed:
            self._appended.append(fields)
            return
        if isinstance(result, Appended):
            outcome = BatchDecision(*fields, window=window_before)
            self._appended.append(outcome)
            if self._pace is not None:
                self._pace.left -= 1
                self.is_followed = self._pace.left > 0
        else:
            window = window_of(partition, header.producer_id)
            outcome = self._explained(BatchDecision(*fields), result, window)
            self._others.append(outcome)
        self._tell(outcome)

    def record_fault(self, hit: FaultHit) -> None:
        """Keeps one hit, numbered here in one sequence with the outcomes."""
        self._metrics.faults[hit.action] += 1
        self._number += 1
        client_id = None if hit.client_id is None else hit.client_id[:CLIENT_ID_MAX]
        hit = hit._replace(number=self._number, client_id=client_id)
        self._faults.append(hit)
        self._tell(hit)

    def record_transaction(
        self, make: Callable[..., TransactionStep], *values: Any, is_large: bool = False
    ) -> None:
        """Keeps the step that `make(*values)` returns, numbered here in one sequence with the outcomes.

        It is made when someone looks at it, from values that do not change: hardly anyone does, and making the steps took 3 %
        of a transaction. `is_large`: it is made now, because the values take much more memory than a step.
        """
        self._number += 1
        recorded: _RecordedStep = self._number, make, values
        if is_large or self._streams:
            step = _made(recorded)
            recorded = self._number, _itself, (step,)
            for stream in self._streams:
                stream.offer(step)
        self._offered += 1
        self._transactions.append(recorded)

    def record_request(self, seen: RequestSeen, now_ms: int) -> None:
        """Shows a request to those who want requests, numbered here in one sequence with the outcomes; none is kept."""
        self._number += 1
        self._tell(seen._replace(number=self._number, time_ms=now_ms))

    # Looking back

    def latest(self, count: int, selection: Selection = EVERYTHING) -> list[BatchDecision]:
        """At most `count` outcomes, the newest first."""
        appended = (BatchDecision(*fields) for fields in self._appended)
        outcomes = sorted([*appended, *self._others], reverse=True)
        return list(islice(filter(selection.includes, outcomes), count))

    def latest_faults(self, count: int, selection: Selection = EVERYTHING) -> list[FaultHit]:
        """At most `count` hits, the newest first."""
        return list(islice(filter(selection.includes, reversed(self._faults)), count))

    def latest_transactions(
        self, count: int, selection: Selection = EVERYTHING
    ) -> list[TransactionStep]:
        """At most `count` steps of transactions, the newest first."""
        steps = map(_made, reversed(self._transactions))
        return list(islice(filter(selection.includes, steps), count))

    def latest_events(self, count: int, selection: Selection = EVERYTHING) -> list[Event]:
        """At most `count` outcomes, steps of transactions and hits, the newest last."""
        events: list[Event] = [*self.latest(count, selection)]
        events += self.latest_transactions(count, selection)
        events += self.latest_faults(count, selection)
        return sorted(events, key=lambda event: event.number)[-count:]

    def last_of(self, producer_id: int) -> BatchDecision | None:
        """The producer's latest batch: who sent it, and where; not what became of it."""
        fields = self._latest.get(producer_id)
        return None if fields is None else BatchDecision(*fields)

    def latest_by_producer(self) -> Iterator[BatchDecision]:
        """Yields `last_of` every producer that is remembered, the newest first."""
        for fields in sorted(self._latest.values(), reverse=True):
            yield BatchDecision(*fields)

    @property
    def number(self) -> int:
        """The number of the latest event."""
        return self._number

    # Following

    def follow(self, stream: DecisionStream) -> None:
        """Offers every event from now on to `stream`."""
        self._use((*self._streams, stream))

    def unfollow(self, stream: DecisionStream) -> None:
        """Stops offering events to `stream`."""
        self._use(tuple(one for one in self._streams if one is not stream))

    def _use(self, streams: tuple[DecisionStream, ...]) -> None:
        self._report_skipped()
        self._streams = streams
        self.wants_requests = any(one.selection.requests for one in streams)
        self.wants_records = any(one.selection.records for one in streams)
        is_paced = bool(streams) and all(one.is_console for one in streams)
        if is_paced and self._pace is None:
            self._pace = Pace(self._report_skipped)
        elif not is_paced and self._pace is not None:
            self._pace.stop()
            self._pace = None
        self._unoffered = self._number - self._offered
        self.is_followed = bool(streams) and (self._pace is None or self._pace.left > 0)

    def _report_skipped(self) -> None:
        """Tells consoles how many appends they were not shown, and shows the next ones again."""
        unoffered = self._number - self._offered
        skipped, self._unoffered = unoffered - self._unoffered, unoffered
        if skipped and self._pace is not None:
            for stream in self._streams:
                stream.offer(Skipped(self._number, skipped))
        if self._pace is not None:
            self.is_followed = self._pace.left > 0

    def followers(self) -> dict[str, int]:
        """The number of followers: programs, and consoles."""
        consoles = sum(stream.is_console for stream in self._streams)
        return {"programs": len(self._streams) - consoles, "consoles": consoles}

    def _tell(self, event: Event) -> None:
        self._offered += 1
        for stream in self._streams:
            stream.offer(event)

    # Decisions worth logging

    def _explained(
        self, outcome: BatchDecision, result: Duplicate | Reject, window: Window
    ) -> BatchDecision:
        if isinstance(result, Duplicate):
            return self._repeated(outcome, result, window)
        return self._rejected(outcome, result, window)

    def _rejected(self, outcome: BatchDecision, reject: Reject, window: Window) -> BatchDecision:
        self._metrics.rejects[reject.code.name] += 1
        rejected = outcome._replace(
            outcome=REJECT, error_code=reject.code, reason=reject.reason, window=window
        )
        if isinstance(reject, OtherRecords):
            self._metrics.reused_sequences_total += 1
        if (
            isinstance(reject, OtherRecords)
            or reject.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        ):
            _warn(rejected)
        return rejected

    def _repeated(
        self, outcome: BatchDecision, duplicate: Duplicate, window: Window
    ) -> BatchDecision:
        self._metrics.duplicates_total += 1
        offset = duplicate.original.base_offset
        reason = f"stored before at offset {offset}"
        repeated = outcome._replace(
            outcome=DUPLICATE, base_offset=offset, reason=reason, window=window
        )
        if not duplicate.divergent:
            return repeated
        self._metrics.divergent_duplicates_total += 1
        divergent = repeated._replace(
            outcome=DIVERGENT_DUPLICATE, reason=f"{reason}, with other bytes"
        )
        _warn(divergent)
        return divergent


def _itself(step: TransactionStep) -> TransactionStep:
    return step


def _made(recorded: _RecordedStep) -> TransactionStep:
    number, make, values = recorded
    step = make(*values)
    if step.client_id is not None and len(step.client_id) > CLIENT_ID_MAX:
        step = step._replace(client_id=step.client_id[:CLIENT_ID_MAX])
    return step._replace(number=number)


def window_of(partition: Partition, producer_id: int) -> Window:
    """The window that the partition holds for the producer at this moment."""
    entry = partition.log.producers.get(producer_id)
    batches = () if entry is None else entry.batches
    return tuple((batch.base_sequence, batch.last_sequence) for batch in batches)


def _warn(outcome: BatchDecision) -> None:
    header = outcome.header
    limited.log(
        logging.WARNING,
        outcome.address.rpartition(":")[0],
        "%s-%d: %s: producer %d epoch %d sequences %d to %d from %s: %s; window %s",
        outcome.topic,
        outcome.partition,
        outcome.outcome,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        outcome.address,
        outcome.reason,
        list(outcome.window or ()),
    )
