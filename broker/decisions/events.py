"""The events that a broker reports, in order: outcomes of batches, steps of transactions, hits of faults, and requests.

Values only. `decisions.py` keeps them, `stream.py` passes them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader

APPEND: Final = "append"
DUPLICATE: Final = "duplicate"
DIVERGENT_DUPLICATE: Final = "divergent_duplicate"
REJECT: Final = "reject"

Subject = tuple[int, str | None, int | None]
"""Producer id, topic and partition that an event is about; None: of any."""

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


class TransactionStepName(StrEnum):
    """The steps of a transaction."""

    SESSION = "session"
    """An instance of the client begins, or goes on in another epoch."""
    BEGIN = "begin"
    """The first partitions are in the transaction."""
    ADD = "add"
    OFFSETS = "offsets"
    """The positions of a group are part of the transaction."""
    COMMIT = "commit"
    ABORT = "abort"
    """The end is decided, as its producer has asked for."""
    TIME_OUT = "time_out"
    FENCE = "fence"
    """The coordinator aborts: it has been open for too long, or another session has begun."""
    MARKER = "marker"
    """The leader of partitions has written the end into their logs."""
    COMPLETE = "complete"
    """Every partition has its marker."""
    REFUSE = "refuse"


class TransactionStep(NamedTuple):
    """One step of a transaction, as its coordinator sees it, or the leader of a partition."""

    number: int
    """Assigned by `record_transaction`, in one sequence with the outcomes."""
    time_ms: int
    step: TransactionStepName
    transactional_id: str
    """Empty if a tool has asked for it."""
    producer_id: int
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...] = ()
    """Topics and partitions, the first ones of many."""
    more: int = 0
    """The number of further partitions."""
    result: str = ""
    """`commit` or `abort`."""
    base_offset: int = -1
    """The offset of a marker, if it is of one partition."""
    error_code: ErrorCode = ErrorCode.NONE
    reason: str = ""
    api: str = ""
    """The request that has asked for it; empty if none of a client has."""
    client_id: str | None = None
    address: str = ""
    """The client's `host:port`; `broker 2` if that has asked."""
    principal: str = ""
    connection_id: int = 0
    correlation_id: int = 0

    def subjects(self) -> Sequence[Subject]:
        if not self.partitions:
            return ((self.producer_id, None, None),)
        return [(self.producer_id, *place) for place in self.partitions]


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


class SeenBatch(NamedTuple):
    """One batch in a request, as its client has sent it."""

    topic: str
    """Its id, if the request names it by one that is not known."""
    partition: int
    header: BatchHeader
    records: bytes | None
    """The bytes behind the header, maybe compressed; None if no one wants them."""


class RequestSeen(NamedTuple):
    """A request that a client has sent, before it is handled."""

    number: int
    """Assigned by `record_request`, in one sequence with the outcomes."""
    time_ms: int
    api: str
    """Its API, such as `produce`."""
    version: int
    size_bytes: int
    """The length of the request, without the four bytes that say so."""
    client_id: str | None
    address: str
    """The client's `host:port`."""
    principal: str
    connection_id: int
    correlation_id: int
    transactional_id: str | None = None
    """The id that a produce request carries, if any."""
    acks: int | None = None
    """The acknowledgements that a produce request asks for; None for others."""
    batches: tuple[SeenBatch, ...] = ()
    is_cut: bool = False
    """Whether its batches are left out, since they are too many to be read here."""

    def subjects(self) -> Sequence[Subject]:
        return [(batch.header.producer_id, batch.topic, batch.partition) for batch in self.batches]

    @property
    def record_bytes(self) -> int:
        """Bytes of records that it holds in memory."""
        return sum(len(batch.records or b"") for batch in self.batches)


class Skipped(NamedTuple):
    """Appends that were not shown to consoles, because there were too many at once."""

    number: int
    """The latest event's."""
    appends: int

    def subjects(self) -> Sequence[Subject]:
        return ()


Event = BatchDecision | FaultHit | TransactionStep | RequestSeen | Skipped
