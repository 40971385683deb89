"""One input partition of a copier that writes in transactions: records, and the offset behind them, in one.

The transactional id belongs to the partition. A member that is assigned it begins a session of the id before it reads the
position: that fences the former owner, ends what it left open, and the position that is read then is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from echoless.client.async_producer import AsyncProducer
from echoless.client.copier.lane import Lane, unused
from echoless.client.copier.records import Copy, InputRecord
from echoless.client.errors import DeliveryError
from echoless.client.groups.assignment import Partition
from echoless.client.sequencer_actions import Failure
from echoless.client.settings import Settings
from echoless.client.transactions.errors import (
    AbortableError,
    FencedError,
    TransactionError,
    UnansweredError,
)
from echoless.client.transactions.group_metadata import GroupMetadata
from echoless.protocol.errors import ErrorCode

EXACT: Final = '{"v":1,"transaction":1}'
"""The metadata of a position that was committed with the records before it: no record from it on is copied."""
_TRANSACTION_OVER: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


def transactional_id(group: str, partition: Partition) -> str:
    """The id of an input partition of a group of copiers."""
    topic, index = partition
    return f"echoless-copier-{group}-{topic}-{index}"


class TransactionalLane(Lane):
    """Sends what the partition's records become, and commits it together with the offset."""

    @classmethod
    async def begin(
        cls, partition: Partition, group: str, servers: str, settings: Settings
    ) -> Self:
        """Begins the session of the partition; the position follows (`start_at`). Raises `TransactionError`."""
        name = transactional_id(group, partition)
        producer = AsyncProducer(servers, settings, transactional_id=name)
        await producer.start()
        return cls(partition, unused(0, 0, 0, 0), producer, is_doubtful=False)

    def start_at(self, offset: int) -> None:
        """Takes the position that is committed."""
        self.commit(unused(0, 0, offset, 0))

    async def send(self, records: Sequence[InputRecord], copy: Copy) -> None:
        """Sends within the transaction, which begins with the first records. Raises `ProducerError`."""
        await self._begin()
        await super().send(records, copy)

    async def commit_at(self, offset: int, group: GroupMetadata) -> None:
        """Commits all that was sent, and the offset behind it. Raises `TransactionError`."""
        await self._begin()
        await self._producer.send_offsets({self.partition: offset}, group, EXACT)
        await self._producer.commit_transaction()

    async def _begin(self) -> None:
        if not self._producer.is_in_transaction:
            await self._producer.begin_transaction()


def ends_generation(error: TransactionError) -> bool:
    """Whether it is another member's turn, or the position has to be read again: what was sent is not committed, or may be.

    Other errors would come again.
    """
    if isinstance(error, FencedError | UnansweredError):
        return True
    if not isinstance(error, AbortableError):
        return False
    cause = error.__cause__
    if not isinstance(cause, DeliveryError):
        return True
    return cause.failure is Failure.FENCED or cause.error_code in _TRANSACTION_OVER
