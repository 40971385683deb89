"""The requests about one transactional id, as far as a coordinator needs to know them."""

from __future__ import annotations

from typing import NamedTuple

from echoless.coordinators.transactions.config import EPOCH_BUMP_VERSION
from echoless.protocol.state_records.transaction_records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionPartition,
)


class InitTransactionalId(NamedTuple):
    """InitProducerId with a transactional id."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    """With the epoch: the identity of a session that goes on after an error; without, a new instance asks."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_two_phase: bool = False
    """Whether the session's transactions are ended by an external coordinator, and have no timeout (KIP-939)."""
    keeps_prepared: bool = False
    """Whether an open transaction of such a session is kept, to be ended by the new one."""


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn, and AddOffsetsToTxn, whose partition is that of the group in `__consumer_offsets`.

    Also what a leader adds for a client of the second generation of the protocol, which does not ask for it.
    """

    producer_id: int
    producer_epoch: int
    partitions: frozenset[TransactionPartition]
    client_version: int = 0
    connection: int | None = None
    """The number of the client's connection; None if a leader asks."""


class VerifyPartitions(NamedTuple):
    """A leader asks whether a client may write to these partitions."""

    producer_id: int
    producer_epoch: int
    partitions: frozenset[TransactionPartition]


class EndTransaction(NamedTuple):
    """EndTxn."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int = 0
    """2 from version 5 of the API on."""
    connection: int | None = None

    @property
    def raises_epoch(self) -> bool:
        """Whether the client takes a new identity from the answer."""
        return self.client_version >= EPOCH_BUMP_VERSION


TransactionRequest = InitTransactionalId | AddPartitions | VerifyPartitions | EndTransaction
