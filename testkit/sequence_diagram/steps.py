"""What a sequence diagram shows, as values: lines, and steps between them from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Batch(NamedTuple):
    """One batch as its producer numbered it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int


class Verdict(Enum):
    """What the broker decided; the values are those of `/decisions`."""

    APPENDED = "append"
    DUPLICATE = "duplicate"
    DIVERGENT = "divergent_duplicate"
    REJECTED = "reject"
    NOT_JUDGED = ""
    """The batch never came as far as a decision."""


class Remembered(NamedTuple):
    """A batch in the window, with the letter that the diagram knows it by, if it does."""

    letter: str
    base_sequence: int
    last_sequence: int


@dataclass(slots=True, kw_only=True)
class Sent:
    """One batch in a request, and what was decided about it."""

    batch: Batch
    letter: str
    attempt: int
    """1 for the first time that the diagram sees it."""
    verdict: Verdict = Verdict.NOT_JUDGED
    base_offset: int = -1
    error: str = ""
    """The error's name: `OUT_OF_ORDER_SEQUENCE_NUMBER`."""
    reason: str = ""
    window: tuple[Remembered, ...] | None = None
    """What it was judged by; None where nobody looked."""


class Fault(NamedTuple):
    """An injected fault that hit a request."""

    rule: str
    action: str
    detail: str = ""
    """The fields of its action: `ms=100`."""

    def field(self, name: str) -> str:
        """One of them; empty where the action has none of that name."""
        pairs = (item.partition("=") for item in self.detail.split())
        return next((value for found, _, value in pairs if found == name), "")


class Fate(Enum):
    """What became of one of the two messages of an exchange."""

    ARRIVED = "arrived"
    LOST = "lost"
    BROKEN = "broken"
    """The connection closed, before or within it."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request and its answer."""

    time_ms: int
    producer: int
    """An index into the diagram's producers; the same of `broker`."""
    broker: int
    api: str
    sent: list[Sent]
    faults: list[Fault]
    request: Fate = Fate.ARRIVED
    response: Fate = Fate.ARRIVED
    is_behind_a_loss: bool = False
    """Whether the answer waits for ever behind one that was lost in the same connection."""


@dataclass(slots=True, kw_only=True)
class Folded:
    """Exchanges in which nothing happened but appends, told in one step."""

    time_ms: int
    producer: int
    broker: int
    exchanges: int
    batches: int
    base_sequence: int | None
    """Of the first batch, where all belong to one producer and partition; else None."""
    last_sequence: int | None


@dataclass(slots=True, kw_only=True)
class Note:
    """Something that happened to a broker, or that whoever recorded the run wants to say."""

    time_ms: int
    broker: int
    text: str
    is_fault: bool = False


Step = Exchange | Folded | Note


class Line(NamedTuple):
    """One who speaks: a vertical line."""

    name: str
    detail: str
    """A second, smaller line of text: the producer id."""


class Stored(NamedTuple):
    """A batch that the recording saw appended."""

    letter: str
    batch: Batch
    base_offset: int


@dataclass(slots=True, kw_only=True)
class Diagram:
    """One recorded run."""

    producers: list[Line]
    brokers: list[Line]
    steps: list[Step]
    partitions: list[tuple[str, int]]
    """All topics and partitions that appear, in order."""
    stored: list[Stored]
    """In the order of appending, over all partitions."""
