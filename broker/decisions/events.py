"""The events that a broker reports, in order: outcomes of batches, and hits of faults.

Values only. `decisions.py` keeps them, `stream.py` passes them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader

APPEND: Final = "append"
DUPLICATE: Final = "duplicate"
DIVERGENT_DUPLICATE: Final = "divergent_duplicate"
REJECT: Final = "reject"

Subject = tuple[int, str, int]
"""Producer id, topic and partition of one batch that an event is about."""

Window = tuple[tuple[int, int], ...]
"""First and last sequence of each remembered batch, oldest first."""


class BatchDecision(NamedTuple):
    """One batch and its outcome."""

    number: int
    """Counts the events of this broker since its start: outcomes and faults."""
    time_ms: int
    topic: str
    partition: int
    header: BatchHeader
    client_id: str | None
    address: str
    """The client's `host:port`."""
    principal: str
    """The client's principal, such as `User:alice`."""
    connection_id: int
    correlation_id: int
    outcome: str
    """One of the four names above."""
    base_offset: int
    """The offset of the batch in the log; -1 if it was refused."""
    error_code: ErrorCode = ErrorCode.NONE
    reason: str = ""
    window: Window | None = None
    """The window it was judged by; None for a batch appended while no one followed."""

    def subjects(self) -> Sequence[Subject]:
        return ((self.header.producer_id, self.topic, self.partition),)


OutcomeFields = tuple[int, int, str, int, BatchHeader, str | None, str, str, int, int, str, int]
"""The fields of an outcome that have no default."""


class FaultedBatch(NamedTuple):
    """One batch in a request that a fault hit."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int


class FaultHit(NamedTuple):
    """An injected fault that took effect, on a request or on the broker."""

    number: int
    """Assigned by `record_fault`, in one sequence with the outcomes."""
    time_ms: int
    rule: str
    """The rule's name."""
    action: str
    """The type of its action: `drop_response`."""
    api: str
    """The request's API, such as `produce`; empty if no request was hit."""
    connection_id: int
    correlation_id: int
    client_id: str | None
    address: str
    """The client's `host:port`."""
    batches: tuple[FaultedBatch, ...] = ()
    """The batches that a produce request carried."""
    detail: str = ""
    """The fields of the action, such as `code=REQUEST_TIMED_OUT`, `ms=100`, `later=wait`."""
    principal: str = ""
    """The client's principal; empty if no request was hit."""
    about: str = ""
    """The transaction that the request is about: `orders-1 commit orders-0`."""

    def subjects(self) -> Sequence[Subject]:
        return [(batch.producer_id, batch.topic, batch.partition) for batch in self.batches]


class Skipped(NamedTuple):
    """Appends that were not shown to consoles, because there were too many at once."""

    number: int
    """The latest event's."""
    appends: int

    def subjects(self) -> Sequence[Subject]:
        return ()


Event = BatchDecision | FaultHit | Skipped
