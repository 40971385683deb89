"""Reassignments: the steps by which a partition moves to other brokers. Pure.

While it moves, a partition's replicas are those of the target followed by those that it had
(`replicas`); `Reassignment` says which of them are new (`adding`) and which will go (`removing`).
The steps, each decided anew from the current state, so that any controller can continue after any
other:
1. the request: the assignment with both (`reassign`). The new replicas fetch, and the leader adds
   them to the ISR once they have everything;
2. all that are added are in sync, as is all of the target that is alive: the leader is moved into
   the target and the others leave the ISR (`move_into_target`);
3. the assignment becomes the target (`arrivals`), on condition that the state of step 2 is
   unchanged (`TopicRegistry.change_assignments`). Brokers that are no longer replicas delete what they had.

A reassignment is cancelled by another one, back to the original replicas.

Invariant: one of the in-sync replicas is always in the assignment; without a live one in the target
nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from echoless.broker.controller.elections import Electorate, led_by
from echoless.broker.metadata.node_data import LeaderAndIsr, Reassignment
from echoless.broker.metadata.topic import Relocation, StateChange, Topic

NONE_PENDING = Reassignment(adding=(), removing=())


def origin_of(topic: Topic, partition: int) -> tuple[int, ...]:
    """The replicas without those that a running reassignment adds."""
    adding = topic.reassignments.get(partition, NONE_PENDING).adding
    return tuple(one for one in topic.assignment[partition] if one not in adding)


def target_of(topic: Topic, partition: int) -> tuple[int, ...]:
    """The replicas once the reassignment is complete."""
    removing = topic.reassignments.get(partition, NONE_PENDING).removing
    return tuple(one for one in topic.assignment[partition] if one not in removing)


def reassign(topic: Topic, partition: int, target: tuple[int, ...]) -> Relocation:
    """The replicas while the partition moves to `target`, and what is moving.

    Replicas that an earlier reassignment has added are dropped, unless they are in sync already:
    then they may be the only ones that have what was committed, and go when the move is complete.
    """
    origin = origin_of(topic, partition)
    state = topic.states.get(partition)
    in_sync = () if state is None else (*state.isr, state.leader)
    needed = [one for one in topic.assignment[partition] if one in origin or one in in_sync]
    replicas = tuple(dict.fromkeys([*target, *needed]))
    adding = tuple(one for one in target if one not in origin)
    removing = tuple(one for one in replicas if one not in target)
    moving = Reassignment(adding=adding, removing=removing)
    return Relocation(replicas, None if moving == NONE_PENDING else moving)


def move_into_target(
    topics: Iterable[Topic],
    brokers: Electorate,
    partitions_of: Callable[[Topic], Iterable[int]] = attrgetter("reassignments"),
) -> list[StateChange]:
    """The states of partitions, of those that `partitions_of` names, that can leave their old replicas."""
    return [
        StateChange(topic.name, partition, before, after)
        for topic in topics
        if topic.reassignments
        for partition in partitions_of(topic)
        if partition in topic.reassignments
        and (before := topic.states.get(partition)) is not None
        and (after := _moved(topic, partition, before, brokers)) is not None
    ]


def arrivals(topic: Topic, partitions: Iterable[int], brokers: Electorate) -> dict[int, Relocation]:
    """The replicas of the target, for each of these partitions whose reassignment is complete."""
    return {
        partition: Relocation(target_of(topic, partition))
        for partition in partitions
        if partition in topic.reassignments and is_moved(topic, partition, brokers)
    }


def is_moved(topic: Topic, partition: int, brokers: Electorate) -> bool:
    """Whether the old replicas are no longer needed: the target alone leads and is in sync."""
    state = topic.states.get(partition)
    if state is None:
        return False
    target = target_of(topic, partition)
    is_alone = state.leader in target and set(state.isr) <= set(target)
    return is_alone and _is_in_sync(topic, partition, state, brokers)


def _moved(
    topic: Topic, partition: int, state: LeaderAndIsr, brokers: Electorate
) -> LeaderAndIsr | None:
    target = target_of(topic, partition)
    isr = tuple(one for one in state.isr if one in target)
    if not _is_in_sync(topic, partition, state, brokers):
        return None
    if isr == state.isr and state.leader in target:
        return None
    leaders = [one for one in target if one in isr and one in brokers.may_lead(topic.name)]
    if not leaders:
        return None  # all in the target cannot read a setting of the topic
    leader = state.leader if state.leader in leaders else leaders[0]
    return led_by(leader, state, isr)


def _is_in_sync(topic: Topic, partition: int, state: LeaderAndIsr, brokers: Electorate) -> bool:
    """Whether the target can do without the others.

    A kept replica that is dead is not waited for: it may never return, and the others have it all.
    """
    isr, target = frozenset(state.isr), frozenset(target_of(topic, partition))
    adding = topic.reassignments.get(partition, NONE_PENDING).adding
    expected = (target & brokers.staying) | frozenset(adding)
    return expected <= isr and not brokers.staying.isdisjoint(isr & target)
