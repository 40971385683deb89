"""A door to leaders that answer as a test says, and a cluster whose partitions they lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from echoless.broker.transactions.partition_leaders import UNKNOWN_TOPIC
from echoless.broker.tree.node_tree import ConnectionLostError
from echoless.coordinators.transactions.events import MarkerAnswered, MarkersWritten
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import MarkerCodes, TransactionMarker
from echoless.protocol.state_records.transaction_records import TransactionPartition

TOPIC_ID = bytes(range(16))


def place(index: int, topic: str = "t", topic_id: bytes = TOPIC_ID) -> TransactionPartition:
    """A partition of a topic."""
    return TransactionPartition(topic, index, topic_id)


class FakeDoor:
    """Notes what is written, and answers with `code_of`."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, list[TransactionMarker]]] = []
        self.code_of: Callable[[int, TransactionPartition], ErrorCode] = lambda *_: ErrorCode.NONE
        self.error: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_answering: set[int] = set()
        """Brokers that answer at once, whatever the others do."""

    async def write(self, broker_id: int, markers: Sequence[TransactionMarker]) -> MarkerCodes:
        self.requests.append((broker_id, list(markers)))
        if broker_id not in self.is_answering:
            await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return [[self.code_of(broker_id, one) for one in row.partitions] for row in markers]

    @property
    def written(self) -> list[tuple[int, TransactionPartition]]:
        """Each partition that was asked for, and the broker."""
        return [
            (broker_id, partition)
            for broker_id, markers in self.requests
            for marker in markers
            for partition in marker.partitions
        ]


class FakeLeaders:
    """Leaders by partition; every topic is known unless it is in `unknown`."""

    def __init__(self) -> None:
        self.by_partition: dict[TransactionPartition, int] = {}
        self.unknown: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self.tree_is_away = False
        self.asked: list[TransactionPartition] = []
        self.looked_at: list[TransactionPartition] = []

    def leader_of(self, partition: TransactionPartition) -> int:
        self.looked_at.append(partition)
        if partition.topic_id in self.unknown | self.deleted:
            return UNKNOWN_TOPIC
        return self.by_partition.get(partition, 1)

    def leaders_of(self, partitions: Sequence[TransactionPartition]) -> list[int]:
        return [self.leader_of(one) for one in partitions]

    async def is_deleted(self, partition: TransactionPartition) -> bool:
        self.asked.append(partition)
        await asyncio.sleep(0)
        if self.tree_is_away:
            raise ConnectionLostError("away")
        return partition.topic_id in self.deleted


class FakeShard:
    """Notes the outcomes of markers."""

    def __init__(self) -> None:
        self.is_over = False
        self.outcomes: list[tuple[str, Any]] = []
        self.sends_again: Callable[..., None] | None = None
        """Called as a coordinator that has a contradicted marker sent again; None: it does not."""

    def marker_answered(self, transactional_id: str, answered: Any) -> None:
        self.outcomes.append((transactional_id, answered))
        if answered.error_code and self.sends_again is not None:
            self.sends_again(answered.partition.partition, is_retry=True)

    def markers_written(self, transactional_id: str, written: MarkersWritten) -> None:
        for partition in written.partitions:
            answered = MarkerAnswered(written.producer_id, written.number, partition)
            self.outcomes.append((transactional_id, answered))

    def partition_deleted(self, transactional_id: str, deleted: Any) -> None:
        self.outcomes.append((transactional_id, deleted))
