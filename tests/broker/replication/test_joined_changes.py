"""Changes of states that wait for the same turn are one write; each still has its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

import pytest

from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metadata.topic import StateChange
from echoless.broker.replication.joined_changes import JOINED_MAX, JoinedChanges
from echoless.broker.tree.node_tree import (
    BadVersionError,
    ConnectionLostError,
    CoordinationError,
    MultiFailedError,
)

STATE = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,))


class FakeRegistry:
    """Takes some time for each write, and refuses those with an overtaken partition."""

    def __init__(self) -> None:
        self.writes: list[list[int]] = []
        self.overtaken: set[int] = set()
        self.error: CoordinationError | None = None

    async def change_states(self, changes: Sequence[StateChange]) -> None:
        await asyncio.sleep(0.001)
        partitions = [change.partition for change in changes]
        if self.error is not None:
            raise self.error
        for index, partition in enumerate(partitions):
            if partition in self.overtaken:
                raise MultiFailedError(index, BadVersionError(f"/{partition}", "is another"))
        self.writes.append(partitions)


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def joined(registry: FakeRegistry) -> JoinedChanges:
    return JoinedChanges(registry)  # type: ignore[arg-type]


def begin(joined: JoinedChanges, partition: int) -> asyncio.Task[None]:
    change = StateChange("t", partition, STATE, STATE._replace(isr=(1, 2)))
    return asyncio.create_task(joined.make(change))


async def outcomes(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_waits_is_one_write(registry: FakeRegistry, joined: JoinedChanges) -> None:
    """As many as one operation may have; what comes during a write is in the next one."""
    tasks = [begin(joined, partition) for partition in range(JOINED_MAX + 3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks.append(begin(joined, 1000))
    assert await outcomes(tasks) == [None] * len(tasks)
    assert [len(write) for write in registry.writes] == [JOINED_MAX, 4]
    await joined.make(StateChange("t", 7, STATE, STATE))
    assert registry.writes[2:] == [[7]]


async def test_a_lost_race_is_that_of_one(registry: FakeRegistry, joined: JoinedChanges) -> None:
    """All others are made, in some dozen writes."""
    registry.overtaken = {77}
    found = await outcomes([begin(joined, partition) for partition in range(200)])
    assert [index for index, error in enumerate(found) if error] == [77]
    assert isinstance(found[77], MultiFailedError)
    assert sorted(chain.from_iterable(registry.writes)) == [one for one in range(200) if one != 77]
    assert len(registry.writes) <= 12


async def test_a_lost_connection_is_everybodys(
    registry: FakeRegistry, joined: JoinedChanges
) -> None:
    """Whether they landed is not known of any; the next ones are tried."""
    registry.error = ConnectionLostError("gone")
    assert await outcomes([begin(joined, 1), begin(joined, 2)]) == [registry.error] * 2
    registry.error = None
    assert await outcomes([begin(joined, 3)]) == [None]


async def test_what_is_given_up_before_its_turn_is_not_written(
    registry: FakeRegistry, joined: JoinedChanges
) -> None:
    """Nor does it hold up the others."""
    tasks = [begin(joined, partition) for partition in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    found = await outcomes(tasks)
    assert isinstance(found[1], asyncio.CancelledError)
    assert registry.writes == [[0, 2]]


async def test_closing_gives_up_what_is_under_way(
    registry: FakeRegistry, joined: JoinedChanges
) -> None:
    """The write that has begun ends, and none follows."""
    task = begin(joined, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await joined.close()
    task.cancel()
    await outcomes([task])
    assert registry.writes == []
