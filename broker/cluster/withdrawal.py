"""The withdrawal of a broker, before it registers, from all that it promised in its previous epoch.

A broker that comes back may have lost the end of its logs. While a state names it as the leader or
as in sync, it could be elected with less than was acknowledged. So it withdraws first: it leads
nothing, and is in sync only if no other replica is, or if it certainly has all that it had. Every
write is conditional; if the controller changes a state meanwhile, one of the two wins, never both.

A leader may be adding the previous epoch to the ISR at this moment: its write was decided on, and
lands late. So if the tail may be lost, every state of a replica here is written, even if unchanged:
that invalidates the version that the leader's write depends on.

Invariant: a broker that registers leads nothing, and is in sync only where it is the last one or
has all that it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.metadata.topic import StateChange, Topic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import MultiFailedError

LOST_RACES_MAX: Final = 100
"""Lost races before the start is given up; each means that another broker has made a change."""


async def withdraw(registry: TopicRegistry, broker_id: int, *, tail_is_safe: bool) -> None:
    """Takes the broker out of all leaderships, and out of the ISRs unless its `tail_is_safe`.

    After that, no write already decided on can bring its previous epoch back into an ISR. For a
    broker that has no roles, with the registry loaded. Raises `ConnectionLostError`, and
    `MultiFailedError` after very many lost races.
    """
    for _ in range(LOST_RACES_MAX):
        try:
            changes = list(_changes(registry.topics, broker_id, tail_is_safe=tail_is_safe))
            await registry.change_states(changes)
        except MultiFailedError:
            continue
        return
    await registry.change_states(
        list(_changes(registry.topics, broker_id, tail_is_safe=tail_is_safe))
    )


def _changes(
    topics: Mapping[str, Topic], broker_id: int, *, tail_is_safe: bool
) -> Iterator[StateChange]:
    for topic in topics.values():
        for partition, before in topic.states.items():
            after = withdrawn(before, broker_id, tail_is_safe=tail_is_safe)
            is_replica = broker_id in topic.assignment.get(partition, ())
            if after != before or (is_replica and not tail_is_safe):
                yield StateChange(topic.name, partition, before, after)


def withdrawn(state: LeaderAndIsr, broker_id: int, *, tail_is_safe: bool) -> LeaderAndIsr:
    """The state without the broker as leader, and out of the ISR unless it is the last one in it."""
    others = tuple(replica for replica in state.isr if replica != broker_id)
    isr = state.isr if tail_is_safe or not others else others
    if state.leader != broker_id:
        return state._replace(isr=isr)
    return state._replace(leader=NO_LEADER, leader_epoch=state.leader_epoch + 1, isr=isr)
