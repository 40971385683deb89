"""A cache of the packed topics of Metadata answers: most clients ask for the same ones repeatedly.

A topic is packed once per requested version, and again when anything in it, or the set of live
brokers, has changed. Packing a large one yields between slices, so that no other request waits for
it. Called by `handlers/metadata.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.partitions.partition_registry import PartitionRegistry
from echoless.protocol.errors import ErrorCode
from echoless.protocol.metadata_response import PartitionRow, encode_partitions, encode_topic

if TYPE_CHECKING:
    from echoless.broker.metadata.topic import Topic

PACKED_AT_ONCE: Final = 500
"""Partitions packed in one step of the loop, in about a millisecond."""
KEPT_BYTES_MAX: Final = 1 << 24
"""Bytes of packed topics to keep, over all versions."""

NEVER_LED: Final = LeaderAndIsr(leader=NO_LEADER, leader_epoch=0, isr=())
"""The state of a partition that is being created."""


class MetadataRows:
    """Packed topics by name and version."""

    def __init__(
        self, registry: TopicRegistry, partitions: PartitionRegistry, cluster: ClusterMembership
    ) -> None:
        self._registry = registry
        self._partitions = partitions
        self._cluster = cluster
        self._kept: dict[tuple[str, int], tuple[Topic, bytes]] = {}
        self._kept_bytes = 0
        self._live: frozenset[int] = frozenset()
        """The live brokers as of the kept rows."""

    def count_missing(self, topics: Iterable[Topic], version: int) -> int:
        """The number of partitions that still have to be packed for an answer with these topics."""
        self._forget_if_brokers_changed()
        return sum(topic.partition_count for topic in topics if self._find(topic, version) is None)

    async def prepare(self, topics: Iterable[Topic], version: int) -> None:
        """Packs these topics, letting other requests run in between."""
        packed = 0
        for topic in topics:
            self._forget_if_brokers_changed()
            if self._find(topic, version) is not None:
                continue
            slices: list[bytes] = []
            count = 0
            rows = self._rows(topic)
            while some := list(islice(rows, PACKED_AT_ONCE)):
                slices.append(encode_partitions(version, some))
                count += len(some)
                packed += len(some)
                if packed >= PACKED_AT_ONCE:
                    packed = 0
                    await asyncio.sleep(0)
            self._keep(topic, version, self._topic(topic, version, count, slices))

    def packed(self, topic: Topic, version: int) -> bytes:
        """The packed topic, packed now if need be. Call after `count_missing` or `prepare`."""
        found = self._find(topic, version)
        if found is None:
            rows = list(self._rows(topic))
            found = self._topic(topic, version, len(rows), [encode_partitions(version, rows)])
            self._keep(topic, version, found)
        return found

    def _find(self, topic: Topic, version: int) -> bytes | None:
        kept = self._kept.get((topic.name, version))
        return kept[1] if kept is not None and kept[0] is topic else None

    def _keep(self, topic: Topic, version: int, packed: bytes) -> None:
        """Keeps the row, unless partitions are opening: they appear without a new topic version."""
        if self._partitions.opening(topic) or self._registry.topics.get(topic.name) is not topic:
            return
        _, old = self._kept.pop((topic.name, version), (None, b""))
        self._kept_bytes += len(packed) - len(old)
        if self._kept_bytes > KEPT_BYTES_MAX:
            self._kept.clear()
            self._kept_bytes = len(packed)
        self._kept[topic.name, version] = topic, packed

    def _forget_if_brokers_changed(self) -> None:
        live = frozenset(self._cluster.brokers)
        if live != self._live:
            self._live = live
            self._kept.clear()
            self._kept_bytes = 0

    def _topic(self, topic: Topic, version: int, count: int, slices: Iterable[bytes]) -> bytes:
        return encode_topic(
            version,
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            partition_count=count,
            partitions=slices,
            is_internal=topic.name in INTERNAL_TOPICS,
        )

    def _rows(self, topic: Topic) -> Iterator[PartitionRow]:
        return partition_rows(topic, self._partitions.opening(topic), self._live)


def partition_rows(
    topic: Topic, opening: Collection[int], live: Collection[int]
) -> Iterator[PartitionRow]:
    """The partitions of the topic, except those that are opening."""
    states = topic.states
    # A copy of the present state: while rows are packed in slices, more of them may open.
    hidden = frozenset(opening)
    for index, replicas in topic.assignment.items():
        if index in hidden:
            continue
        state = states.get(index, NEVER_LED)
        yield PartitionRow(
            ErrorCode.NONE if state.leader != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
            index,
            state.leader,
            state.leader_epoch,
            replicas,
            state.isr,
            [one for one in replicas if one not in live],
        )
