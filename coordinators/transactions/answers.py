"""The answers to requests about a transactional id."""

from __future__ import annotations

from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionPartition,
    TransactionValue,
)

NO_NUMBER: Final = -1
"""The number of no transaction."""


class TransactionAnswer(NamedTuple):
    """A code of the newest version of the API: older ones say 47 for 90."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    """With the epoch: the identity of the session from now on, if the request asks for one."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    abortable: frozenset[TransactionPartition] = frozenset()
    """Partitions of a `VerifyPartitions` that are not in the transaction (120)."""
    number: int = NO_NUMBER
    """The transaction that partitions were added to, or looked for in, counted by transactional id."""
    kept_producer_id: int = NO_PRODUCER_ID
    """With the epoch: the session that wrote the transaction that is kept, if one is."""
    kept_producer_epoch: int = NO_PRODUCER_EPOCH


class Transition(NamedTuple):
    """A change that is to be stored, and the answer once it is committed."""

    value: TransactionValue
    answer: TransactionAnswer


DONE = TransactionAnswer()
