"""The effects of a transactional id: those that every coordinator has, and those of transactions.

The shell carries them out in the order given. What a record allows, an answer or markers, comes with the step for its
`TransactionStored`, so nothing is sent from a record that is not committed.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from echoless.coordinators.effects import CancelTimer, LogLine, Reply, SetTimer
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.protocol.state_records.transaction_records import (
    TransactionPartition,
    TransactionValue,
)


class StoreTransaction(NamedTuple):
    """Append the value, or a tombstone; `TransactionStored` or `TransactionNotStored` follows. One at a time."""

    value: TransactionValue | None


class SendMarkers(NamedTuple):
    """Have the leaders of these partitions append a marker; a `MarkerAnswered` or `MarkersWritten` follows for each."""

    producer_id: int
    producer_epoch: int
    number: int
    is_commit: bool
    partitions: frozenset[TransactionPartition]
    client_version: int
    is_retry: bool = False
    """Whether the shell looks up the leader again, and waits a little before it asks."""


class TakeProducerId(NamedTuple):
    """The spare producer id is in use from now on, whatever comes of the append."""

    producer_id: int


class CloseConnection(NamedTuple):
    """Close the connection of a request, without an answer: it may be a delayed copy of one that was answered."""

    reply_id: int


class ForgetTransactionalId(NamedTuple):
    """Nothing is known of the id any more."""


class TransactionTimerKind(enum.Enum):
    TIMEOUT = "timeout"
    """The transaction has taken too long."""
    COMPLETION = "completion"
    """The end of the transaction has not been stored, and is tried again."""
    HOLD = "hold"
    """A request has waited long enough."""


class TransactionTimer(NamedTuple):
    kind: TransactionTimerKind
    reply_id: int = 0
    """The request that is held."""


TransactionEffect = (
    StoreTransaction
    | SendMarkers
    | TakeProducerId
    | CloseConnection
    | ForgetTransactionalId
    | Reply[TransactionAnswer]
    | SetTimer[TransactionTimer]
    | CancelTimer[TransactionTimer]
    | LogLine
)
TransactionEffects = list[TransactionEffect]

TIMEOUT = TransactionTimer(TransactionTimerKind.TIMEOUT)
COMPLETION = TransactionTimer(TransactionTimerKind.COMPLETION)
