"""Which in-sync replicas the leader writes, and when it leaves the state node alone."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.metadata.node_data import LeaderAndIsr, Reassignment
from echoless.broker.metadata.topic import StateChange, Topic
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.core.in_sync_replicas import InSyncReplicas
from echoless.broker.replication.isr_changes import IsrChanges

LIFE = 7
"""The broker epoch of every broker, as the leader knows it."""
END = 5
"""The end of the leader's log, and the high watermark."""


class FakeRegistry:
    """One topic, and what became of its only partition."""

    def __init__(self, isr: tuple[int, ...], replicas: tuple[int, ...], moving: Any) -> None:
        self.written: list[tuple[int, ...]] = []
        topic = Topic(
            name="t",
            topic_id=uuid.UUID(int=1),
            assignment={0: replicas},
            states={0: LeaderAndIsr(leader=3, leader_epoch=1, isr=isr)},
            config={},
            reassignments={} if moving is None else {0: moving},
        )
        self.topics = {"t": topic}
        self.partition: Any = None

    async def change_states(self, changes: Sequence[StateChange]) -> None:
        (change,) = changes
        self.written.append(change.after.isr)
        self.partition.in_sync.settle(change.after.isr)


async def written(
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    moving: Reassignment | None,
    *,
    has_ended: bool = False,
    is_proved: bool = True,
    registered: int = LIFE,
) -> list[tuple[int, ...]]:
    """The ISRs that leader 3 writes where every follower has everything."""
    registry = FakeRegistry(isr, replicas, moving)
    in_sync = InSyncReplicas(3, replicas, isr, epoch_start_offset=0, now_s=0.0)
    for broker_id in replicas:
        if broker_id != 3:
            in_sync.note_fetch(broker_id, LIFE, END, END, 0.0)
    partition: Any = SimpleNamespace(
        topic="t",
        index=0,
        name="t-0",
        leader_epoch=1,
        replicas=replicas,
        high_watermark=END,
        in_sync=in_sync,
        log=SimpleNamespace(log_end_offset=END),
        advance_high_watermark=lambda: None,
    )
    registry.partition = partition

    async def read_epoch(broker_id: int) -> int:
        assert broker_id in in_sync.largest, "what is committed now, it may lack"
        return registered

    changes = IsrChanges(
        registry,  # type: ignore[arg-type]
        {("t", 0): partition},
        lag_max_s=1e9,
        is_proved=lambda: is_proved,
        registered_epoch=lambda _: LIFE,
        read_epoch=read_epoch,
        metrics=Metrics(),
    )
    if has_ended:
        changes.end()
    changes.consider_all()
    while changes._changes:  # noqa: ASYNC110 - as many turns as the writes take
        await asyncio.sleep(0)
    assert in_sync.pending is None
    return registry.written


async def test_whoever_has_caught_up_is_written() -> None:
    """All at once; and nothing is written where everybody is in sync."""
    assert await written((3,), (3, 4, 1), None) == [(3, 4, 1)]
    assert await written((3, 4, 1), (3, 4, 1), None) == []


async def test_a_life_that_has_ended_is_not_written() -> None:
    """Its records may be lost: the leader has just not been notified of the new broker epoch."""
    assert await written((3,), (3, 4, 1), None, registered=LIFE + 1) == []
    assert await written((3, 4), (3, 4), None, registered=LIFE + 1) == []


async def test_a_leader_in_doubt_leaves_the_isr_alone() -> None:
    """It refuses what followers ask, so it can tell neither who lags nor who has caught up."""
    assert await written((3,), (3, 4, 1), None, is_proved=False) == []


async def test_a_leader_without_a_disk_leaves_the_isr_alone() -> None:
    """Followers that cannot read from it must not be dropped for that: one of them has to lead."""
    assert await written((3,), (3, 4, 1), None, has_ended=True) == []


@pytest.mark.parametrize(
    ("isr", "expected"),
    [
        ((3, 4), []),  # all of the target: 1 and 2 are about to be dropped
        ((3,), [(3, 4, 1, 2)]),  # until then every replica counts
        ((3, 4, 1), []),  # who is in sync stays so, until the controller takes it out
    ],
)
async def test_a_reassignment_lets_nobody_back_whom_it_removes(
    isr: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    """From 1 and 2 to 3 and 4: leader and controller must not alternate about 1 and 2."""
    moving = Reassignment(adding=(3, 4), removing=(1, 2))
    assert await written(isr, (3, 4, 1, 2), moving) == expected


async def test_the_clock_looks_closely_at_partitions_that_are_not_level() -> None:
    """Beside 3,000 idle ones: a follower that lacks a record, and one that has not fetched in this epoch, leave."""
    count, lagging, silent = 3000, 7, 2999
    asked: list[int] = []
    now_s = asyncio.get_running_loop().time()
    held: dict[tuple[str, int], Any] = {}
    for index in range(count):
        in_sync = InSyncReplicas(3, (3, 4), (3, 4), epoch_start_offset=0, now_s=now_s - 60)
        if index != silent:
            in_sync.note_fetch(4, LIFE, END - (index == lagging), END, now_s - 60)
        held["t", index] = SimpleNamespace(
            topic="t",
            name=f"t-{index}",
            high_watermark=END - 1,
            in_sync=in_sync,
            log=SimpleNamespace(log_end_offset=END),
        )

    def registered_epoch(_: int) -> int:
        asked.append(1)
        return LIFE

    changes = IsrChanges(
        SimpleNamespace(topics={}),  # type: ignore[arg-type]
        held,
        lag_max_s=30.0,
        is_proved=lambda: True,
        registered_epoch=registered_epoch,
        read_epoch=None,  # type: ignore[arg-type]
        metrics=Metrics(),
    )
    begun: list[str] = []
    changes._change = _noting(begun)  # type: ignore[method-assign]
    await changes.consider_lagging()
    await asyncio.sleep(0)
    assert begun == [f"t-{lagging}", f"t-{silent}"]
    assert len(asked) <= 2 * 2


def _noting(begun: list[str]) -> Any:
    async def change(partition: Any) -> None:
        begun.append(partition.name)

    return change
