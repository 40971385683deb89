"""A shard over a partition in memory, with a coordinator that a test scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.broker.groups.cluster_topics import ClusterTopics
from echoless.broker.groups.shard import GroupShard, GroupShardParts
from echoless.broker.metrics import Metrics
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.shard_state import ShardState
from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Now, Requested
from echoless.coordinators.groups.answers import GroupAnswer, HeartbeatAnswer
from echoless.coordinators.groups.effects import GroupEffect
from echoless.coordinators.groups.events import GroupEvent
from echoless.coordinators.groups.requests import Heartbeat
from echoless.coordinators.recovery import Recovery
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage.log_config import LogConfig
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.broker.partitions.led import Led
from tests.broker.until import until
from tests.storage.one_log import NOW_MS, OneLog

HEARTBEAT = Heartbeat("g", 1, "m", None)
ALIVE = HeartbeatAnswer(ErrorCode.NONE)


@dataclass
class ScriptedCoordinator:
    """Notes the events, and has the effects that a test gives it."""

    effects_of: Callable[[GroupEvent], list[GroupEffect]] = lambda _: []
    events: list[GroupEvent] = field(default_factory=list)
    applied: list[bytes] = field(default_factory=list)
    may_start: asyncio.Event | None = None
    recovery: Recovery | None = None

    def apply(self, key: bytes, _value: bytes | None) -> str | None:
        self.applied.append(key)
        return None

    def apply_in_transaction(self, _producer_id: int, key: bytes, _value: bytes | None) -> None:
        self.applied.append(key)

    def end_replayed_transaction(self, _producer_id: int, _is_commit: bool) -> None:
        pass

    def start(self, _now: Now) -> Iterator[list[GroupEffect]]:
        yield []

    def step(self, event: GroupEvent, _now: Now) -> list[GroupEffect]:
        self.events.append(event)
        return self.effects_of(event)

    def recover(self, _event: GroupEvent, _now: Now) -> Recovery | None:
        return self.recovery


def alive(event: GroupEvent) -> list[GroupEffect]:
    """Answers every request at once."""
    return [Reply(event.reply_id, ALIVE)] if isinstance(event, Requested) else []


class Sharded:
    """A shard over a partition in memory, with a coordinator of the test's own."""

    def __init__(self, *, replicas: tuple[int, ...] = (1,)) -> None:
        fencing = FakeFencing(epochs={2: 7})
        self.led = Led(LogFlush.OS, replicas, fencing, OneLog(LogConfig(retention_ms=-1)))
        self.led.lead(2, isr=replicas)
        self.coordinator = ScriptedCoordinator(alive)
        self.reloaded: list[GroupShard] = []
        appends = AppendParts(
            now_ms=lambda: NOW_MS,
            wall_ms=lambda: NOW_MS,
            fail_storage=pytest.fail,
            metrics=Metrics(),
            timeout_s=60,
        )
        self.parts: Any = GroupShardParts(
            lambda: self.coordinator, appends, self.reloaded.append, ClusterTopics({})
        )

    def store(self, key: bytes) -> None:
        batch = build_batch([Record(0, NOW_MS, key, b"")])
        self.led.partition.append_state(batch, read_header(batch), NOW_MS)

    async def serving(self) -> GroupShard:
        shard = GroupShard(self.led.partition, self.parts)
        await until(lambda: shard.state is ShardState.SERVING)
        return shard


async def answer_of(shard: GroupShard, request: Any = HEARTBEAT) -> GroupAnswer:
    answered = shard.ask(request)
    return await answered if isinstance(answered, Awaitable) else answered
