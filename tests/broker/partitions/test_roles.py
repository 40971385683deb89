"""Notifications of roles: what a coordinator of groups will load and drop its state by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from echoless.broker.metadata.node_data import (
    NO_LEADER,
    LeaderAndIsr,
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
)
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.partitions.partition import Partition
from tests.broker.cluster.one_member import Member
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.fakes.memory_node_tree import MemoryTree

STATE = partition_state_path("orders", 0)


@dataclass(slots=True)
class Recorder:
    """A `RoleListener` that records what it is notified of, and what the partition says then."""

    events: list[tuple[Any, ...]] = field(default_factory=list)

    def led(self, partition: Partition, epoch: int) -> None:
        assert partition.is_leader
        assert epoch == partition.leader_epoch
        self.events.append(("led", partition.name, epoch))

    def lost(self, partition: Partition) -> None:
        assert not partition.is_leader
        self.events.append(("lost", partition.name, partition.leader_id))


async def leading() -> tuple[Member, Recorder]:
    """A member that leads orders-0, whose notifications are recorded."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    recorder = Recorder()
    member.broker.replicas.listen(recorder)
    await member.broker.services.topics.create(NewTopic(name="orders"))
    await member.led("orders")
    return member, recorder


async def write_state(member: Member, **changes: Any) -> LeaderAndIsr:
    """Changes the partition's state node, as a controller does."""
    tree = member.server.connect()
    node = await tree.read(STATE)
    state = decode_partition_state(STATE, node)._replace(**changes)
    await tree.write(STATE, encode_partition_state(state), node.version)
    return state


async def test_a_new_leadership_is_announced_with_its_epoch() -> None:
    """Once for each leader epoch: a state that changes only the ISR announces nothing."""
    member, recorder = await leading()
    assert recorder.events == [("led", "orders-0", 0)]
    await write_state(member, isr=(1,))
    await write_state(member, leader_epoch=1)
    await member.until(lambda: len(recorder.events) == 2)
    assert recorder.events[1:] == [("led", "orders-0", 1)]
    await member.broker.stop()


@pytest.mark.parametrize("leader", [2, NO_LEADER])
async def test_a_lost_leadership_is_announced(leader: int) -> None:
    """The announcement has the new leader, so that it can be fetched from, or none."""
    member, recorder = await leading()
    await write_state(member, leader=leader, leader_epoch=1)
    await member.until(lambda: len(recorder.events) >= 2)
    assert recorder.events[1] == ("lost", "orders-0", leader)
    await member.broker.stop()


async def test_the_end_of_a_session_loses_every_leadership() -> None:
    """It loses them at once, not when the coordinator can be reached again.

    Later it leads in a new epoch.
    """
    member, recorder = await leading()
    member.tree.expire_session()
    await member.until(lambda: len(recorder.events) == 2)
    assert recorder.events[1:] == [("lost", "orders-0", NO_LEADER)]
    member.tree.reconnect()
    await member.until(lambda: recorder.events[-1][0] == "led")
    _, name, epoch = recorder.events[-1]
    assert (name, epoch > 0) == ("orders-0", True)
    await member.broker.stop()


async def test_a_deleted_partition_is_lost() -> None:
    """Nothing is kept for a partition that is not held any more."""
    member, recorder = await leading()
    await member.broker.services.topics.delete("orders")
    await member.until(lambda: len(recorder.events) == 2)
    assert recorder.events[1:] == [("lost", "orders-0", NO_LEADER)]
    await member.broker.stop()
