"""A shard of groups: what it answers while it loads, and the work that only its coordinator has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from echoless.broker.groups.shard import GroupShard
from echoless.broker.state_topics import held_requests as held_module
from echoless.broker.state_topics.shard_state import ShardState
from echoless.coordinators.events import (
    Requested,
)
from echoless.coordinators.groups.answers import DeleteAnswer, SyncAnswer
from echoless.coordinators.groups.effects import MakeTarget
from echoless.coordinators.groups.events import TargetMade
from echoless.coordinators.groups.requests import DeleteGroup, SyncGroup
from echoless.protocol.errors import ErrorCode
from tests.broker.state_topics.sharded import ALIVE, HEARTBEAT, Sharded, alive, answer_of
from tests.broker.until import until


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_request_is_not_held_for_long(
    monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """14 to most, 0 to a heartbeat, 27 to SyncGroup: 14 would end Java's consumer."""
    monkeypatch.setattr(held_module, "HELD_MAX" if is_full else "HELD_S", 0)
    one = Sharded(replicas=(1, 2))
    one.store(b"a")
    shard = GroupShard(one.led.partition, one.parts)
    assert await answer_of(shard, HEARTBEAT) == ALIVE
    sync = SyncGroup("g", 1, "m", None, ())
    assert await answer_of(shard, sync) == SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    delete = DeleteGroup("g")
    assert await answer_of(shard, delete) == DeleteAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    one.led.partition.note_fetch(2, 7, 1)
    await until(lambda: shard.state is ShardState.SERVING)
    assert one.coordinator.events == []


class Stepwise:
    """Steps that go on until the test ends them."""

    def __init__(self) -> None:
        self.taken = 0
        self.may_end = False

    def __iter__(self) -> Iterator[None]:
        while not self.may_end:
            self.taken += 1
            yield


async def test_others_are_served_between_the_steps_of_an_assignment() -> None:
    """Seconds of work for one group hold up no one else; the coordinator is told when it is done."""
    one = Sharded()
    shard = await one.serving()
    work = Stepwise()
    steps = iter(work)
    one.coordinator.effects_of = lambda event: (
        [MakeTarget("g", steps)]
        if isinstance(event, Requested) and event.reply_id == 1
        else alive(event)
    )
    waiting = asyncio.ensure_future(answer_of(shard))
    await until(lambda: work.taken)
    assert shard.ask(HEARTBEAT) == ALIVE
    assert TargetMade("g", steps) not in one.coordinator.events
    work.may_end = True
    await until(lambda: TargetMade("g", steps) in one.coordinator.events)
    waiting.cancel()


async def test_an_assignment_ends_with_the_lead() -> None:
    """Nothing is left that works for a coordinator that is no more."""
    one = Sharded()
    shard = await one.serving()
    work = Stepwise()
    one.coordinator.effects_of = lambda _: [MakeTarget("g", iter(work))]
    waiting = asyncio.ensure_future(answer_of(shard))
    await until(lambda: work.taken)
    shard.lose()
    await waiting
    assert not shard._working


async def test_a_bug_in_an_assignor_has_the_groups_loaded_again() -> None:
    """Their group would wait for its target for ever."""

    def steps() -> Iterator[None]:
        yield
        raise ZeroDivisionError

    one = Sharded()
    shard = await one.serving()
    one.coordinator.effects_of = lambda event: (
        [MakeTarget("g", steps())] if isinstance(event, Requested) else []
    )
    waiting = asyncio.ensure_future(answer_of(shard))
    await until(lambda: one.reloaded)
    assert one.reloaded == [shard]
    waiting.cancel()
