"""Markers that have to be written: the transactions that they end, and how they gather into one request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from echoless.coordinators.transactions.effects import SendMarkers
from echoless.coordinators.transactions.events import (
    MarkerAnswered,
    MarkersWritten,
    PartitionDeleted,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import MarkerCodes, TransactionMarker
from echoless.protocol.state_records.transaction_records import TransactionPartition


class MarkerShard(Protocol):
    """The shard that has markers sent."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, so that another coordinator sends what is missing."""

    def marker_answered(self, transactional_id: str, answered: MarkerAnswered) -> None:
        """Notes that a leader contradicts a marker."""

    def markers_written(self, transactional_id: str, written: MarkersWritten) -> None:
        """Notes markers that a leader has written."""

    def partition_deleted(self, transactional_id: str, deleted: PartitionDeleted) -> None:
        """Notes that a partition needs no marker."""


class MarkerSource(NamedTuple):
    """The transactional id whose transaction ends, and its coordinator."""

    shard: MarkerShard
    transactional_id: str
    state_partition: int
    coordinator_epoch: int


class MarkerDoor(Protocol):
    """The way to the leaders of partitions, on this broker and on others."""

    async def write(self, broker_id: int, markers: Sequence[TransactionMarker]) -> MarkerCodes:
        """Has a broker append the markers; returns once each is committed or refused.

        Raises `PeerError`, `KafkaError`, `DecodeError` if there is no such answer: then any of them may be in a log.
        """


@dataclass(slots=True, eq=False)
class PendingMarker:
    """A marker of one partition that is missing."""

    source: MarkerSource
    markers: SendMarkers
    partition: TransactionPartition
    since_s: float
    """When it was first sent, by the loop's clock."""
    attempts: int = 0
    """Attempts that have failed."""
    wait: asyncio.TimerHandle | None = None
    """Sends it again after a failure."""
    queued: int | None = None
    """The broker in whose queue it is."""
    asked: int | None = None
    """The broker whose answer counts; None while it is in no request, and once it is in."""

    def contradicted(self, code: ErrorCode) -> MarkerAnswered:
        """The event for a marker that a leader contradicts."""
        return MarkerAnswered(self.markers.producer_id, self.markers.number, self.partition, code)

    def deleted(self) -> PartitionDeleted:
        """The event for a partition that is gone."""
        return PartitionDeleted(self.markers.producer_id, self.markers.number, self.partition)


def gathered(pending: Iterable[PendingMarker]) -> list[list[PendingMarker]]:
    """The markers by transaction, in the order in which they came."""
    found: dict[tuple[int, str, int, int], list[PendingMarker]] = {}
    last: SendMarkers | None = None
    row: list[PendingMarker] = []
    for one in pending:
        source, markers = one.source, one.markers
        if markers is not last:  # those of one transaction come together for the most part
            key = id(source.shard), source.transactional_id, markers.producer_id, markers.number
            row, last = found.setdefault(key, []), markers
        row.append(one)
    return list(found.values())


def written(of_one: Sequence[PendingMarker]) -> MarkersWritten:
    """The event for markers of one transaction that are in."""
    markers = of_one[0].markers
    partitions = frozenset([one.partition for one in of_one])
    return MarkersWritten(markers.producer_id, markers.number, partitions)


def to_marker(of_one: Sequence[PendingMarker]) -> TransactionMarker:
    """The message's row for markers of one transaction."""
    source, markers = of_one[0].source, of_one[0].markers
    return TransactionMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        number=markers.number,
        is_commit=markers.is_commit,
        state_partition=source.state_partition,
        coordinator_epoch=source.coordinator_epoch,
        client_version=markers.client_version,
        partitions=tuple([one.partition for one in of_one]),
        transactional_id=source.transactional_id,
    )


class MissingMarkers:
    """The markers that are missing, by topic: a change of one topic costs what is missing there."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[PendingMarker, None]] = {}
        """In the order in which they were sent. Dictionaries as sets."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, several: Sequence[PendingMarker]) -> None:
        """Adds some that were not missing."""
        for pending in several:
            name = pending.partition.topic
            found = self._by_topic.get(name)
            if found is None:
                found = self._by_topic[name] = {}
            found[pending] = None
        self._count += len(several)

    def remove(self, several: Sequence[PendingMarker]) -> None:
        """Removes those that are still missing."""
        for pending in several:
            name = pending.partition.topic
            found = self._by_topic.get(name)
            if found is None or pending not in found:
                continue
            del found[pending]
            self._count -= 1
            if not found:
                del self._by_topic[name]

    def of_topic(self, name: str) -> list[PendingMarker]:
        """The markers for partitions of a topic."""
        return list(self._by_topic.get(name, ()))

    @property
    def oldest_since_s(self) -> float | None:
        """When the oldest was sent, by the loop's clock; None without one."""
        return min([next(iter(found)).since_s for found in self._by_topic.values()], default=None)

    def clear(self) -> list[PendingMarker]:
        """Removes all of them."""
        found = [pending for of_topic in self._by_topic.values() for pending in of_topic]
        self._by_topic.clear()
        self._count = 0
        return found
