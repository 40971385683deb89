"""The events of a transactional id: those that every coordinator has, and those of transactions."""

from __future__ import annotations

from typing import NamedTuple

from echoless.coordinators.events import Abandoned, Requested, TimerFired
from echoless.coordinators.transactions.effects import TransactionTimer
from echoless.coordinators.transactions.requests import TransactionRequest
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import TransactionPartition


class TransactionStored(NamedTuple):
    """The high watermark has passed the record of the last `StoreTransaction`."""


class TransactionNotStored(NamedTuple):
    """The record was refused, or did not become committed in time.

    With `may_commit` it is in the log: one of the two events follows later, unless the lead is lost.
    """

    error_code: ErrorCode
    may_commit: bool = False


class MarkerAnswered(NamedTuple):
    """A leader has answered for a marker of this transaction. Numbers begin again when an id expires, with a new producer."""

    producer_id: int
    number: int
    partition: TransactionPartition
    error_code: ErrorCode = ErrorCode.NONE


class MarkersWritten(NamedTuple):
    """A leader has written the marker of this transaction in all of these partitions."""

    producer_id: int
    number: int
    partitions: frozenset[TransactionPartition]


class PartitionDeleted(NamedTuple):
    """The topic id of a partition is gone from the tree: no marker is needed. A missing leader is no proof of it."""

    producer_id: int
    number: int
    partition: TransactionPartition


class ExpiryCheck(NamedTuple):
    """See whether the id has been idle for too long."""


TransactionEvent = (
    Requested[TransactionRequest]
    | Abandoned
    | TransactionStored
    | TransactionNotStored
    | MarkerAnswered
    | MarkersWritten
    | PartitionDeleted
    | TimerFired[TransactionTimer]
    | ExpiryCheck
)
