"""The partitions that a broker may lead without asking anyone, and what their states become.

A single broker does this at its start; in a cluster the controller decides for all brokers instead.
The leader epoch grows at every restart, as with Kafka: what was appended before a crash can be distinguished
from what is appended after it. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.metadata.topic import Topic


def initial_state(replicas: tuple[int, ...], able: Collection[int] | None = None) -> LeaderAndIsr:
    """The state of a new partition: its first replica leads, all are in sync, as none has a record.

    Only replicas `able` to (None: all of them) count, if there are any; else none leads yet.
    """
    if able is None:
        return LeaderAndIsr(leader=replicas[0], leader_epoch=0, isr=replicas)
    isr = tuple(replica for replica in replicas if replica in able)
    if not isr:
        return LeaderAndIsr(leader=NO_LEADER, leader_epoch=0, isr=replicas)
    return LeaderAndIsr(leader=isr[0], leader_epoch=0, isr=isr)


def claim(topic: Topic, broker_id: int) -> Topic:
    """The topic once the broker leads, one epoch later, all the partitions that it may lead.

    It claims what it led before, and what has no leader while it is in sync. A partition without a
    state was never led: its preferred replica gives it the first one.
    """
    states = {
        partition: state
        for partition, replicas in topic.assignment.items()
        if (state := _claimed(topic.states.get(partition), replicas, broker_id)) is not None
    }
    return topic._replace(states=states)


def _claimed(
    state: LeaderAndIsr | None, replicas: tuple[int, ...], broker_id: int
) -> LeaderAndIsr | None:
    if state is None:
        return initial_state(replicas) if replicas[0] == broker_id else None
    is_free = state.leader == NO_LEADER and broker_id in state.isr
    if state.leader != broker_id and not is_free:
        return state
    return state._replace(
        leader=broker_id,
        leader_epoch=state.leader_epoch + 1,
        node_version=state.node_version + 1,
    )
