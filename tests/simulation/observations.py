"""Everything seen from outside: what clients sent, got and read, and what disks stored.

Plain records, filled while a history runs and judged by `checkers/` afterwards. A finding that is
obvious at once is added to `findings` on the spot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

FINDINGS_MAX: Final = 20


class Spot(NamedTuple):
    """One partition."""

    topic: str
    partition: int


@dataclass(slots=True, kw_only=True)
class SentBatch:
    """One batch that a producer sends until it is acknowledged."""

    producer: str
    spot: Spot
    number: int
    """Its place among the batches of this producer for this partition."""
    values: tuple[bytes | None, ...]
    acks: int
    ready_at: float
    """When the producer has it."""
    keys: tuple[bytes, ...] = ()
    """Those of the records; none if the topic is not compacted."""
    producer_id: int = -1
    producer_epoch: int = 0
    base_sequence: int = -1
    data: bytes = b""
    identities: list[bytes] = field(default_factory=list)
    """Its bytes under every producer id that it was sent with: one, but for acks=1."""
    acknowledged_at: float | None = None
    offset: int | None = None
    """The offset in the acknowledgement; -1: it has none (46)."""
    attempts: list[tuple[float, str, int | None]] = field(default_factory=list)
    """When, at which broker, and the error code that came back (None: no answer)."""


class Poll(NamedTuple):
    """One batch in a consumer's hand."""

    at: float
    consumer: str
    spot: Spot
    base_offset: int
    data: bytes


class Seek(NamedTuple):
    """A consumer continues after records that were deleted before it had read them."""

    consumer: str
    spot: Spot
    position: int
    log_start_offset: int
    """Log start of the leader at that time; the next leader's may be lower again."""


class Append(NamedTuple):
    """Bytes being written to a log file of a broker."""

    at: float
    node: str
    directory: str
    data: bytes


@dataclass(slots=True)
class Observations:
    """Everything seen in one history."""

    clock: Callable[[], float]
    batches: list[SentBatch] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    seeks: list[Seek] = field(default_factory=list)
    appends: list[Append] = field(default_factory=list)
    producer_ids: list[tuple[float, str, int]] = field(default_factory=list)
    state_changes: list[tuple[float, str, bytes | None]] = field(default_factory=list)
    """Time, path and data of every change of a node."""
    more_counts: Counter[str] = field(default_factory=Counter)
    """How often what happened in histories of other kinds than records."""
    findings: list[str] = field(default_factory=list)
    """Violated promises, in words."""
    trace: list[tuple[Any, ...]] = field(default_factory=list)
    """The events, in order: for the reader of a failure, and to compare two runs."""

    tell: Callable[[tuple[Any, ...]], None] | None = None
    """Hears of each line of the trace at once."""

    def note(self, *facts: Any) -> None:
        """Adds a line to the trace."""
        line = (round(self.clock(), 6), *facts)
        self.trace.append(line)
        if self.tell is not None:
            self.tell(line)

    def find(self, text: str) -> None:
        """A promise was broken. Only the first few are of interest."""
        if len(self.findings) >= FINDINGS_MAX:
            return
        self.findings.append(f"at {self.clock():.3f}: {text}")
        self.note("FINDING", text)
