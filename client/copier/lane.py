"""One input partition of a copier: its producer, and how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from echoless.client.async_producer import AsyncProducer
from echoless.client.copier.position import Position, PositionError
from echoless.client.copier.records import Copy, InputRecord
from echoless.client.groups.assignment import Partition
from echoless.client.settings import Settings
from echoless.client.state import ProducerState


class Lane:
    """Sends what the partition's records become, under the producer id that its position names."""

    def __init__(
        self,
        partition: Partition,
        position: Position,
        producer: AsyncProducer,
        *,
        is_doubtful: bool,
    ) -> None:
        self.partition = partition
        self.committed = position
        self.offset = position.offset
        """The offset of the next record; those before it were given to the producer."""
        self.sent = 0
        """Records given to the producer since the last commit."""
        self.sent_bytes = 0
        """Size of their keys and values."""
        self._clean_since_ms = position.at_ms if position.is_clean else None
        """The first of the orderly ends that have followed each other up to now; None: this would be the first."""
        self._producer = producer
        self._certain: set[tuple[str, int]] | None = None
        """Output partitions of which it is known whether they hold records of this id; None: all."""
        if is_doubtful:
            self._certain = {
                (one.topic, one.partition)
                for one in position.state.partitions
                if one.next_sequence > 0
            }

    @classmethod
    async def open(
        cls,
        partition: Partition,
        position: Position,
        servers: str,
        settings: Settings,
        *,
        is_doubtful: bool = False,
    ) -> Self:
        """Starts from a position that is committed."""
        producer = AsyncProducer.resume(position.state, servers, settings)
        await producer.start()
        return cls(partition, position, producer, is_doubtful=is_doubtful)

    async def send(self, records: Sequence[InputRecord], copy: Copy) -> None:
        """Gives the producer what the records become; waits for room.

        Raises `ProducerError`, `PositionError`.
        """
        for record in records:
            for one in copy(record):
                self._check(one.topic, one.partition)
                timestamp_ms = one.timestamp_ms if one.timestamp_ms >= 0 else record.timestamp
                await self._producer.send(
                    one.topic,
                    one.value,
                    key=one.key,
                    partition=one.partition,
                    headers=one.headers,
                    timestamp_ms=timestamp_ms,
                )
                self.sent += 1
                self.sent_bytes += len(one.key or b"") + len(one.value or b"")
            self.offset = record.offset + 1

    async def reached(self, offset: int, now_ms: int, *, is_clean: bool) -> Position:
        """The position at `offset`, once everything before it is acknowledged. Raises `DeliveryError`."""
        await self._producer.flush()
        if is_clean and self._clean_since_ms is not None:
            now_ms = self._clean_since_ms
        return Position(
            offset=offset,
            state=self._producer.state(),
            born_ms=self.committed.born_ms,
            at_ms=now_ms,
            is_clean=is_clean,
        )

    def commit(self, position: Position) -> None:
        """Takes a position that was committed."""
        self.committed, self.offset = position, position.offset
        self.sent = self.sent_bytes = 0

    async def close(self) -> None:
        """Stops at once."""
        await self._producer.close()

    def _check(self, topic: str, index: int) -> None:
        if self._certain is None or (topic, index) in self._certain:
            return
        name, number = self.partition
        raise PositionError(
            f"{name}-{number}: the copier was stopped for too long, without an orderly end: whether it has written to "
            f"{topic}-{index} after its last commit is forgotten by now, so records could be stored twice. Compare the "
            "topics, move the group with `echoless groups reset-offsets`, and start once with bare_offsets=True "
            "(--bare-offsets)"
        )


def unused(producer_id: int, epoch: int, offset: int, now_ms: int) -> Position:
    """The position of a producer id under which nothing was written."""
    state = ProducerState(producer_id=producer_id, producer_epoch=epoch)
    return Position(offset=offset, state=state, born_ms=now_ms, at_ms=now_ms)
