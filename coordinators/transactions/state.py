"""The state of one transactional id: an immutable value, replaced whole."""

from __future__ import annotations

from typing import NamedTuple

from echoless.coordinators.events import Requested
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.requests import TransactionRequest
from echoless.protocol.state_records.transaction_records import (
    TransactionPartition,
    TransactionValue,
)


class PendingStore(NamedTuple):
    """A record that is neither committed nor refused, and the answer that waits for it."""

    value: TransactionValue | None
    """None is a tombstone."""
    reply_id: int | None = None
    """None if no one waits, or the request was answered without knowing the outcome."""
    answer: TransactionAnswer | None = None
    waits_for_markers: bool = False
    """Whether the answer waits for the end of the transaction that the record decides."""


class SessionConnection(NamedTuple):
    """The newest connection that has spoken for a session."""

    producer_id: int
    producer_epoch: int
    connection: int


class TransactionalIdState(NamedTuple):
    """All that is known of a transactional id.

    Invariant: `value` is the last committed record of the id, and nothing is answered or sent from any other.
    """

    value: TransactionValue | None = None
    storing: PendingStore | None = None
    unmarked: frozenset[TransactionPartition] = frozenset()
    """In Prepare: the partitions whose marker is missing."""
    unanswered: tuple[int, TransactionAnswer] | None = None
    """In Prepare: the request, and its answer, that waits for the markers."""
    held: tuple[Requested[TransactionRequest], ...] = ()
    """Requests that wait for what is under way, in their order."""
    deadline_ms: int = 0
    """Monotonic time at which the open transaction is aborted."""
    newest: SessionConnection | None = None

    @property
    def is_pending(self) -> bool:
        """Whether something is under way: a record, or the end of a transaction that is decided."""
        return self.storing is not None or (
            self.value is not None and self.value.status.is_prepared
        )
