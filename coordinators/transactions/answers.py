"""The answers to requests about a transactional id."""

from __future__ import annotations

from typing import NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionPartition,
    TransactionValue,
)


class TransactionAnswer(NamedTuple):
    """A code of the newest version of the API: older ones say 47 for 90."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    """With the epoch: the identity of the session from now on, if the request asks for one."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    abortable: frozenset[TransactionPartition] = frozenset()
    """Partitions of a `VerifyPartitions` that are not in the transaction (120)."""


class Transition(NamedTuple):
    """A change that is to be stored, and the answer once it is committed."""

    value: TransactionValue
    answer: TransactionAnswer


DONE = TransactionAnswer()
