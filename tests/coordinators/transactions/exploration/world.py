"""One transactional id and all around it: its log, the markers, the clients' identities, and what must hold of them.

The network is as bad as it can be: any request that a client could ever have sent, with any identity that was ever answered,
may arrive at any time, any number of times. Markers and their answers are never lost for good, and come again at will.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from echoless.coordinators.events import Now
from echoless.coordinators.transactions.requests import InitTransactionalId, TransactionRequest
from echoless.coordinators.transactions.state import TransactionalIdState
from echoless.protocol.state_records.transaction_records import (
    TransactionPartition,
    TransactionValue,
)

PARTITIONS: Final = (TransactionPartition("t", 0), TransactionPartition("t", 1))
TIMEOUT_MS: Final = 1_000
NOW: Final = Now(0, 0)
LATER: Final = Now(1_000_000, 0)
"""Late enough for every timeout."""
MUCH_LATER: Final = Now(0, 1 << 50)
"""Late enough for an id to expire."""


class GivenIdentity(NamedTuple):
    """An identity that a client was answered with."""

    producer_id: int
    producer_epoch: int
    session: int
    """Counts the instances of the client."""


class Decision(NamedTuple):
    """A Prepare record that is committed."""

    number: int
    is_commit: bool
    producer_id: int
    producer_epoch: int
    """The identity of the session, not that of the markers."""
    partitions: frozenset[TransactionPartition]


Marker = tuple[int, int, TransactionPartition]
"""The producer id, the number of the transaction, and the partition."""


class InflightRecord(NamedTuple):
    """A record that is neither committed nor refused."""

    value: TransactionValue | None
    by: TransactionRequest | None
    """The request that it is stored for."""
    is_unknown: bool = False
    """The core was notified that the outcome is not known."""


class IdWorld(NamedTuple):
    """A state of the world around one id. What the core does not know is kept for the judge."""

    state: TransactionalIdState = TransactionalIdState()
    durable: TransactionValue | None = None
    """The last committed record, None if there is none, or a tombstone."""
    inflight: tuple[InflightRecord, ...] = ()
    """Records that may still be committed, in the order of the log."""
    asked: tuple[tuple[int, TransactionRequest], ...] = ()
    """Requests without an answer, by reply id."""
    given: tuple[GivenIdentity, ...] = ()
    session: int = 0
    fenced: int = 0
    """Sessions up to this one are fenced."""
    decisions: tuple[Decision, ...] = ()
    sent: frozenset[Marker] = frozenset()
    """Markers that this coordinator has sent."""
    network: frozenset[Marker] = frozenset()
    """Markers that any coordinator has sent."""
    written: frozenset[Marker] = frozenset()
    """Markers that leaders have appended."""
    timers: frozenset[str] = frozenset()
    """Those of `TIMEOUT` and `COMPLETION` that are set."""


class BrokenInvariantError(Exception):
    """An invariant is broken."""


def is_new_instance(request: TransactionRequest | None) -> bool:
    """Whether an InitProducerId comes without an identity."""
    return isinstance(request, InitTransactionalId) and request.producer_id == -1
