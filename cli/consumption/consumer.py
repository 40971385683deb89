# mypy: disable-error-code="no-untyped-call"
# aiokafka has no annotations.
"""The reader of `echoless consume`, over aiokafka's consumer. Importing it takes 200 ms."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from echoless.cli.cluster import ClusterConnections, check, security_of
from echoless.cli.consumption.record_lines import RecordLines
from echoless.cli.consumption.starts import StartPosition
from echoless.cli.errors import CommandError
from echoless.cli.options import BrokerOptions
from echoless.client.aiokafka_options import security_arguments

_POLL_MS: Final = 200
_RECORDS_MAX: Final = 10_000
"""Records printed between two looks at the time."""
_COMMIT_INTERVAL_S: Final = 1.0


class Wanted(NamedTuple):
    """The options that say what to read."""

    topic: str
    start: StartPosition
    group: str | None
    partitions: tuple[int, ...]
    """None of them: all."""
    follow: bool
    count_max: int | None
    isolation: str
    """`read_committed` or `read_uncommitted`; also says where a partition ends."""


async def print_records(broker: BrokerOptions, wanted: Wanted, lines: RecordLines) -> None:
    """Prints until the end, the wanted number, or cancellation. Raises `CommandError`."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters is raised
    partitions = await asyncio.to_thread(_existing, broker, wanted)
    try:
        async with _opened(broker, wanted) as consumer:
            if wanted.group is None:
                reader = await _Reader.of_partitions(consumer, wanted, partitions)
            else:
                reader = _Member(consumer, wanted)
            await reader.print_all(lines)
    except KafkaError as error:
        reason = str(error) or type(error).__name__
        raise CommandError(f"{wanted.topic}: {reason}") from error


def _existing(broker: BrokerOptions, wanted: Wanted) -> list[TopicPartition]:
    """The partitions to read. A first request, whose errors are clearer than a consumer's."""
    with ClusterConnections.open(broker) as cluster:
        (topic,) = cluster.metadata([wanted.topic]).topics
    check(topic.error_code, wanted.topic)
    existing = {row.partition_index for row in topic.partitions}
    for partition in wanted.partitions:
        if partition not in existing:
            raise CommandError(
                f"--partition: {wanted.topic} has partitions 0 to {max(existing)}, not {partition}"
            )
    return [TopicPartition(wanted.topic, one) for one in sorted(wanted.partitions or existing)]


@contextlib.asynccontextmanager
async def _opened(broker: BrokerOptions, wanted: Wanted) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_server,
        client_id="echoless-consume",
        group_id=wanted.group,
        enable_auto_commit=False,
        auto_offset_reset=wanted.start.end or "earliest",
        isolation_level=wanted.isolation,
        **security_arguments(security_of(broker)),
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


class _Reader:
    """Reads assigned partitions, and knows where it may stop."""

    def __init__(self, consumer: AIOKafkaConsumer, wanted: Wanted) -> None:
        self.consumer = consumer
        self._wanted = wanted
        self._left = wanted.count_max
        self._ends: dict[TopicPartition, int] = {}
        """The end of each partition when it was first read from."""

    @classmethod
    async def of_partitions(
        cls, consumer: AIOKafkaConsumer, wanted: Wanted, partitions: Sequence[TopicPartition]
    ) -> _Reader:
        """One without a group, at the start that is wanted. Raises `CommandError`."""
        reader = cls(consumer, wanted)
        consumer.assign(partitions)
        await reader.note_ends(partitions)
        await reader.seek(partitions)
        return reader

    async def note_ends(self, partitions: Sequence[TopicPartition]) -> None:
        """The ends of partitions that were just assigned."""
        self._ends |= await self.consumer.end_offsets(partitions)

    async def seek(self, partitions: Sequence[TopicPartition]) -> None:
        """Goes to the start in each partition."""
        start = self._wanted.start
        if start.timestamp_ms is not None:
            found = await self.consumer.offsets_for_times(
                dict.fromkeys(partitions, start.timestamp_ms)
            )
            for partition in partitions:
                at = found[partition]
                self.consumer.seek(partition, self._ends[partition] if at is None else at.offset)
        elif start.offset is not None:
            firsts = await self.consumer.beginning_offsets(partitions)
            for partition in partitions:
                first, end = firsts[partition], self._ends[partition]
                if not first <= start.offset <= end:
                    raise CommandError(
                        f"--from: partition {partition.partition} has offsets {first} to {end}, "
                        f"not {start.offset}"
                    )
                self.consumer.seek(partition, start.offset)
        elif start.end == "latest":
            await self.consumer.seek_to_end(*partitions)
        else:
            await self.consumer.seek_to_beginning(*partitions)

    async def print_all(self, lines: RecordLines) -> None:
        """Prints until the end, the wanted number, or cancellation."""
        while not await self.is_at_end():
            records_max = min(_RECORDS_MAX, self._left or _RECORDS_MAX)
            found = await self.consumer.getmany(timeout_ms=_POLL_MS, max_records=records_max)
            records = list(chain.from_iterable(found.values()))
            try:
                lines.write(records)
            except BaseException:
                for partition, unprinted in found.items():
                    self.consumer.seek(partition, unprinted[0].offset)
                raise
            if self._left is not None:
                self._left -= len(records)
            await self.after_printing()

    async def is_at_end(self) -> bool:
        """Whether there is nothing left to print."""
        if self._left == 0:
            return True
        if self._wanted.follow:
            return False
        assigned = self.consumer.assignment()
        if not assigned or not assigned <= self._ends.keys():
            return False
        return all([await self.consumer.position(one) >= self._ends[one] for one in assigned])

    async def after_printing(self) -> None:
        """Does nothing: a reader without a group keeps no position."""


class _Member(_Reader, ConsumerRebalanceListener):
    """Shares the partitions with the other members, and commits what was printed."""

    def __init__(self, consumer: AIOKafkaConsumer, wanted: Wanted) -> None:
        super().__init__(consumer, wanted)
        self._committed_at = 0.0
        consumer.subscribe([wanted.topic], listener=self)

    async def print_all(self, lines: RecordLines) -> None:
        try:
            await super().print_all(lines)
        finally:
            await self._commit()

    async def after_printing(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._committed_at >= _COMMIT_INTERVAL_S:
            self._committed_at = now
            await self._commit()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Commits before another member gets them."""
        if revoked:
            await self._commit()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Looks up where they end."""
        if assigned:
            await self.note_ends(list(assigned))

    async def _commit(self) -> None:
        if self.consumer.assignment():
            await self.consumer.commit()
