# mypy: disable-error-code="no-untyped-call"
# aiokafka has no annotations.
"""The input of a copier: the records of its partitions from given offsets on, by aiokafka's consumer.

It is no member of a group, and never goes anywhere by itself: an offset that does not exist any more is an error.
Importing it takes 200 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from echoless.client.aiokafka_options import security_arguments
from echoless.client.coordinator import Backoff
from echoless.client.copier.position import PositionError
from echoless.client.copier.records import InputRecord
from echoless.client.errors import ProducerError
from echoless.client.groups.assignment import Partition
from echoless.client.messages import CLIENT_ID
from echoless.client.security import Security

_POLL_MS: Final = 100
_STARTS_MAX: Final = 20
"""Attempts to reach a broker, the last ones 2 s apart."""


class Reader:
    """Reads the partitions that it was last assigned."""

    def __init__(self, servers: str, security: Security, *, records_max: int) -> None:
        self._records_max = records_max
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            client_id=CLIENT_ID,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            **security_arguments(security),
        )

    async def start(self) -> None:
        """Connects; waits for a broker. Raises `ProducerError`."""
        backoff = Backoff()
        for attempt in range(1, _STARTS_MAX + 1):
            try:
                await self._consumer.start()
            except KafkaError as error:
                if attempt == _STARTS_MAX or not error.retriable:
                    raise ProducerError(f"the input cannot be read: {_text(error)}") from error
                await backoff.pause()
            else:
                return

    async def close(self) -> None:
        await self._consumer.stop()

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        """Reads these partitions from these offsets on, and no others."""
        # No `unsubscribe`: the fetcher dies if it wakes up without a subscription.
        self._consumer.assign([TopicPartition(*one) for one in offsets])
        for partition, offset in offsets.items():
            self._consumer.seek(TopicPartition(*partition), offset)

    async def read(self) -> dict[Partition, list[InputRecord]]:
        """The next records, after a short wait perhaps none. Raises `PositionError`, `ProducerError`."""
        if not self._consumer.assignment():
            await asyncio.sleep(_POLL_MS / 1000)
            return {}
        try:
            found = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=self._records_max)
        except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
            raise PositionError(
                f"the input does not have the offset that comes next: {_text(error)}; records were deleted before they "
                "were copied. Move the group with `echoless groups reset-offsets`, then start once with "
                "bare_offsets=True (--bare-offsets)"
            ) from error
        except KafkaError as error:
            raise ProducerError(f"the input cannot be read: {_text(error)}") from error
        return {(one.topic, one.partition): list(records) for one, records in found.items()}

    async def next_offset(self, partition: Partition) -> int:
        """The offset of the next record that `read` returns, which may be past markers and gaps."""
        return int(await self._consumer.position(TopicPartition(*partition)))

    def known_end(self, partition: Partition) -> int | None:
        """The end as far as transactions allow to read, as of the last fetch; None before the first."""
        found: int | None = self._consumer.last_stable_offset(TopicPartition(*partition))
        return None if found is None or found < 0 else found

    async def starts(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The first offset of each. Raises `ProducerError`."""
        return await self._ends_by(self._consumer.beginning_offsets, partitions)

    async def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The end of each, as far as transactions allow to read. Raises `ProducerError`."""
        return await self._ends_by(self._consumer.end_offsets, partitions)

    async def _ends_by(self, ask: Any, partitions: Sequence[Partition]) -> dict[Partition, int]:
        if not partitions:
            return {}
        try:
            found = await ask([TopicPartition(*one) for one in partitions])
        except KafkaError as error:
            raise ProducerError(f"the input cannot be read: {_text(error)}") from error
        return {(one.topic, one.partition): offset for one, offset in found.items()}


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
