"""What was decided about each batch of an idempotent producer, and why.

Produce reports every outcome here, so that `/metrics`, the log and `/decisions` cannot disagree.
Memory is bounded: two rings of `capacity` outcomes, one for appended batches and one for the
interesting rest, so that a busy producer's appends never push out the one refusal that somebody
is looking for.

A spurious 45 makes clients store records twice, so each one is logged with the window it was
judged by, and so is a repeat whose bytes differ.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.metrics import Metrics
from broker.request import Request
from protocol.dedup import Duplicate, Reject
from protocol.errors import ErrorCode
from protocol.record_batch import BatchHeader
from storage.log import Appended

if TYPE_CHECKING:
    from broker.partition import Partition

CAPACITY_DEFAULT: Final = 1000

APPEND: Final = "append"
DUPLICATE: Final = "duplicate"
DIVERGENT_DUPLICATE: Final = "divergent_duplicate"
REJECT: Final = "reject"

logger = logging.getLogger(__name__)

Window = tuple[tuple[int, int], ...]
"""First and last sequence of each remembered batch, oldest first."""


class Outcome(NamedTuple):
    """One batch and what became of it."""

    number: int
    """Counts the outcomes of this broker since its start."""
    time_ms: int
    topic: str
    partition: int
    header: BatchHeader
    client_id: str | None
    address: str
    """The client's `host:port`."""
    outcome: str
    """One of the four names above."""
    base_offset: int
    """Where the batch stands in the log; -1 when it was refused."""
    error_code: ErrorCode = ErrorCode.NONE
    reason: str = ""
    window: Window = ()
    """What it was judged by, where it was refused or its bytes differ."""


class Decisions:
    """The latest outcomes of one broker. Single owner: the event loop."""

    __slots__ = ("_appended", "_metrics", "_number", "_others")

    def __init__(self, metrics: Metrics, capacity: int = CAPACITY_DEFAULT) -> None:
        self._metrics = metrics
        self._number = 0
        self._appended: deque[Outcome] = deque(maxlen=capacity)
        self._others: deque[Outcome] = deque(maxlen=capacity)

    def record(
        self,
        request: Request,
        partition: Partition,
        header: BatchHeader,
        result: Appended | Duplicate | Reject,
        now_ms: int,
    ) -> None:
        """Keeps one outcome (the oldest of its ring goes when that is full), counts and logs it."""
        self._number = number = self._number + 1
        client_id, address = request.header.client_id, request.peer.address
        topic, index = partition.topic, partition.index
        offset = result.base_offset if isinstance(result, Appended) else -1
        outcome = Outcome(number, now_ms, topic, index, header, client_id, address, APPEND, offset)
        if isinstance(result, Appended):
            self._appended.append(outcome)
        elif isinstance(result, Duplicate):
            self._others.append(self._repeated(outcome, result, _window(partition, header)))
        else:
            self._others.append(self._rejected(outcome, result, _window(partition, header)))

    def latest(
        self, count: int, *, producer_id: int | None = None, topic: str | None = None
    ) -> list[Outcome]:
        """At most `count` outcomes, the newest first, of one producer or topic if asked for."""
        wanted = (
            outcome
            for outcome in sorted([*self._appended, *self._others], reverse=True)
            if producer_id is None or outcome.header.producer_id == producer_id
            if topic is None or outcome.topic == topic
        )
        return list(islice(wanted, count))

    def _rejected(self, outcome: Outcome, reject: Reject, window: Window) -> Outcome:
        self._metrics.rejects[reject.code.name] += 1
        rejected = outcome._replace(
            outcome=REJECT, error_code=reject.code, reason=reject.reason, window=window
        )
        if reject.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            _warn(rejected)
        return rejected

    def _repeated(self, outcome: Outcome, duplicate: Duplicate, window: Window) -> Outcome:
        self._metrics.duplicates_total += 1
        offset = duplicate.original.base_offset
        reason = f"stored before at offset {offset}"
        repeated = outcome._replace(outcome=DUPLICATE, base_offset=offset, reason=reason)
        if not duplicate.divergent:
            return repeated
        self._metrics.divergent_duplicates_total += 1
        divergent = repeated._replace(
            outcome=DIVERGENT_DUPLICATE, reason=f"{reason}, with other bytes", window=window
        )
        _warn(divergent)
        return divergent


def _window(partition: Partition, header: BatchHeader) -> Window:
    entry = partition.log.producers.get(header.producer_id)
    batches = () if entry is None else entry.batches
    return tuple((batch.base_sequence, batch.last_sequence) for batch in batches)


def _warn(outcome: Outcome) -> None:
    header = outcome.header
    logger.warning(
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
        list(outcome.window),
    )
