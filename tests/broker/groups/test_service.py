"""The groups of a broker that leads several partitions of `__consumer_offsets`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.config.loading import Config, LogFlush
from echoless.broker.groups import deleted_topics
from echoless.broker.groups.cluster_topics import ClusterTopics
from echoless.broker.groups.service import GroupService
from echoless.broker.metadata.topic import TopicDeleted
from echoless.broker.metrics import Metrics
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.shard_state import ShardState
from echoless.coordinators.groups.answers import GroupAnswer
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    GroupRequest,
    OffsetCommit,
    OffsetFetch,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.partitioner import partition_of
from echoless.storage.log_config import LogConfig
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.broker.partitions.led import Led
from tests.broker.until import until
from tests.storage.one_log import NOW_MS, OneLog

PARTITIONS = 2
DAY_MS = 24 * 3_600_000


class Coordinating:
    """Groups over partitions in memory, all of which this broker leads."""

    def __init__(self) -> None:
        self.wall_ms = self.expiry_ms = NOW_MS
        self.expiry_looks = 0
        topic: Any = SimpleNamespace(name=CONSUMER_OFFSETS, partition_count=PARTITIONS)
        appends = AppendParts(
            now_ms=lambda: NOW_MS,
            wall_ms=lambda: self.wall_ms,
            fail_storage=pytest.fail,
            metrics=Metrics(),
            timeout_s=60,
        )
        self.groups = GroupService(
            Config(offsets_retention_check_interval_ms=1),
            topic,
            appends,
            topics=ClusterTopics({}),
            new_uuid=uuid.uuid4,
            expiry_ms=self._look_at_expiry_clock,
        )
        self.led = [self._led(index) for index in range(PARTITIONS)]

    def _look_at_expiry_clock(self) -> int:
        self.expiry_looks += 1
        return self.expiry_ms

    def _led(self, index: int) -> Led:
        led = Led(LogFlush.OS, (1,), FakeFencing(), OneLog(LogConfig(retention_ms=-1)))
        led.partition.topic, led.partition.index = CONSUMER_OFFSETS, index
        return led

    async def serve(self) -> None:
        for led in self.led:
            self.groups.led(led.partition, 1)
        shards = self.groups.shards.values()
        await until(lambda: all(one.state is ShardState.SERVING for one in shards))

    async def ask(self, request: GroupRequest) -> GroupAnswer:
        answered = self.groups.ask(request)
        return await answered if isinstance(answered, Awaitable) else answered

    async def committed(self, group_id: str) -> list[int]:
        """The offsets of the group."""
        answer: Any = await self.ask(OffsetFetch(group_id, None))
        return [row.offset for row in answer.partitions]

    def delete_topic(self) -> None:
        """The cluster reports that t is gone."""
        topic: Any = SimpleNamespace(name="t")
        self.groups.on_topic_event(TopicDeleted(topic))

    async def commit(self, group_id: str, offset: int, metadata: str = "") -> ErrorCode:
        """Commits an offset of t-0."""
        partitions = (CommittedPartition("t", 0, offset, -1, metadata),)
        answer: Any = await self.ask(OffsetCommit(group_id, -1, "", None, partitions))
        return answer.error_codes[0]


@pytest.fixture
async def one(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Coordinating]:
    """Groups that serve."""
    monkeypatch.setattr(deleted_topics, "FORGET_AGAIN_S", 0.001)
    coordinating = Coordinating()
    await coordinating.serve()
    yield coordinating
    await coordinating.groups.close()


def group_of(index: int) -> str:
    """A group that the partition has."""
    return next(name for name in map(str, range(100)) if partition_of(name, PARTITIONS) == index)


async def test_all_partitions_share_what_a_broker_may_hold(
    one: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more one coordinator holds, the less is left for the others, until its partition is lost."""
    first, second = group_of(0), group_of(1)
    for shard in one.groups.shards.values():
        assert shard.coordinator is not None
        bounds = shard.coordinator._bounds
        monkeypatch.setattr(bounds, "config", bounds.config._replace(metadata_bytes_max=1_000))
    assert await one.commit(first, 1, "x" * 900) is ErrorCode.NONE
    assert await one.commit(second, 1, "x" * 900) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    one.groups.lost(one.led[0].partition)
    assert await one.commit(second, 1, "x" * 900) is ErrorCode.NONE


async def test_a_commit_after_a_deletion_is_of_a_new_topic(one: Coordinating) -> None:
    """The last shard's turn comes when the topic was created again, and committed to."""
    assert await one.commit(group_of(0), 5) is ErrorCode.NONE
    assert await one.commit(group_of(1), 5) is ErrorCode.NONE
    one.delete_topic()
    one.wall_ms += 1
    assert await one.commit(group_of(1), 7) is ErrorCode.NONE
    await until(lambda: not one.groups._forgetting)
    assert await one.committed(group_of(0)) == []
    assert await one.committed(group_of(1)) == [7]


async def test_a_shard_that_is_loading_forgets_a_deleted_topic_once_it_serves(
    one: Coordinating,
) -> None:
    """Its offsets are read from the log after the deletion, and would be those of the next topic of that name."""
    assert await one.commit(group_of(0), 5) is ErrorCode.NONE
    one.groups.led(one.led[0].partition, 1)
    assert one.groups.shards[0].state is ShardState.LOADING
    one.delete_topic()
    await until(lambda: not one.groups._forgetting)
    assert await one.committed(group_of(0)) == []


async def test_offsets_expire_by_the_clock_that_deletes(one: Coordinating) -> None:
    """The machine's clock is set 8 days forward, and the offsets stay; once it is trusted they go."""
    await one.commit("g", 7)
    expiry = asyncio.create_task(one.groups.run())
    one.wall_ms += 8 * DAY_MS
    looks = one.expiry_looks
    await until(lambda: one.expiry_looks > looks + 2 * PARTITIONS)
    assert await one.committed("g") == [7]
    one.expiry_ms = one.wall_ms
    looks = one.expiry_looks
    await until(lambda: one.expiry_looks > looks + 2 * PARTITIONS)
    assert await one.committed("g") == []
    expiry.cancel()
