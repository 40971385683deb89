"""The contents of a sequence diagram: lines, and steps between them from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class NumberedBatch(NamedTuple):
    """One batch as its producer numbered it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int


class BatchVerdict(Enum):
    """The broker's decision; the values are those of `/decisions`."""

    APPENDED = "append"
    DUPLICATE = "duplicate"
    DIVERGENT = "divergent_duplicate"
    REJECTED = "reject"
    NOT_JUDGED = ""
    """The batch never reached a decision."""


class WindowEntry(NamedTuple):
    """A batch in the window, with its letter in the diagram, if it has one."""

    letter: str
    base_sequence: int
    last_sequence: int


@dataclass(slots=True, kw_only=True)
class Sent:
    """One batch in a request, and the decision about it."""

    batch: NumberedBatch
    letter: str
    attempt: int
    """1 the first time it appears in the diagram."""
    verdict: BatchVerdict = BatchVerdict.NOT_JUDGED
    base_offset: int = -1
    error: str = ""
    """The error's name: `OUT_OF_ORDER_SEQUENCE_NUMBER`."""
    reason: str = ""
    window: tuple[WindowEntry, ...] | None = None
    """The window against which it was judged; None if it was not judged."""


class Fault(NamedTuple):
    """An injected fault that hit a request."""

    rule: str
    action: str
    detail: str = ""
    """The fields of its action: `ms=100`."""

    def field(self, name: str) -> str:
        """One of the fields; empty if the action has none of that name."""
        pairs = (item.partition("=") for item in self.detail.split())
        return next((value for found, _, value in pairs if found == name), "")


class Fate(Enum):
    """The fate of one of the two messages of an exchange."""

    ARRIVED = "arrived"
    LOST = "lost"
    BROKEN = "broken"
    """The connection closed, before the message or within it."""


class TransactionCall(NamedTuple):
    """A request about a transaction, and what became of it."""

    step: str
    """The name of the step in `/decisions`: `begin`, `commit`, `refuse`."""
    transactional_id: str
    places: str
    """The partitions: `orders-0, orders-1`."""
    producer_epoch: int
    error: str
    """The error's name, or empty."""
    reason: str


@dataclass(slots=True, kw_only=True)
class RoundTrip:
    """A request and its answer."""

    time_ms: int
    producer: int
    """An index into the diagram's producers; the same for `broker`."""
    broker: int
    api: str
    sent: list[Sent]
    faults: list[Fault]
    request: Fate = Fate.ARRIVED
    response: Fate = Fate.ARRIVED
    about: str = ""
    """The transaction that a request without batches is about, as a fault names it."""
    call: TransactionCall | None = None
    """What became of a request about a transaction; None if it was never judged."""
    is_behind_a_loss: bool = False
    """Whether the answer waits for ever for one that was lost on the same connection."""


@dataclass(slots=True, kw_only=True)
class Folded:
    """Exchanges in which nothing happened but appends, folded into one step."""

    time_ms: int
    producer: int
    broker: int
    exchanges: int
    batches: int
    base_sequence: int | None
    """The first batch's, if all belong to one producer and partition; else None."""
    last_sequence: int | None


@dataclass(slots=True, kw_only=True)
class Remark:
    """A remark about a broker, or a note added by the recorder."""

    time_ms: int
    broker: int
    text: str
    is_fault: bool = False


Step = RoundTrip | Folded | Remark


class Lifeline(NamedTuple):
    """A participant: a vertical line."""

    name: str
    detail: str
    """A second, smaller line of text: the producer id."""


class AppendedBatch(NamedTuple):
    """A batch that the recording saw appended."""

    letter: str
    batch: NumberedBatch
    base_offset: int


@dataclass(slots=True, kw_only=True)
class Diagram:
    """One recorded run."""

    producers: list[Lifeline]
    brokers: list[Lifeline]
    steps: list[Step]
    partitions: list[tuple[str, int]]
    """All topics and partitions that appear, in order."""
    stored: list[AppendedBatch]
    """In append order, over all partitions."""
