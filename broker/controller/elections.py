"""Elections of partition leaders: the states as they should be, given the live brokers. Pure.

Level-triggered: every function compares the states as they are with the brokers as they are, and
returns the difference. It does not matter which events led there, how many were missed, or who
wrote the states; deciding again on the result changes nothing more.

Rules for one partition:
0. A broker that cannot read a setting of the topic, by its own registration, does not lead it, and stays in the ISR.
1. The leader is alive, is not leaving, is a replica and in sync: it continues to lead. A leaving
   broker, or one that is no longer a replica, is taken out of the ISR; any other follower is taken
   out only by the leader.
2. Otherwise the first replica in assignment order that is alive, not leaving and in sync leads. The
   new ISR consists of the members of the old one that are alive and not leaving.
3. No such replica exists: the partition is without a leader (-1) and keeps its ISR, whose members
   alone are known to have everything that was committed. A leaving leader continues while another
   replica is alive, which may still catch up with it.
4. No member of the ISR is alive, and the topic allows unclean elections: the first replica that is
   alive and not leaving leads, alone in the ISR. What only the old ISR had is lost.
5. The partition has no state: no broker has ever led it, and none has a record. The replicas that
   are alive make up the first ISR.

Invariant: every state written here has a leader epoch one higher than before, so that a leader
notified of it starts anew; an ISR is never empty; a leader is alive, assigned and in the ISR.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.metadata.topic import StateChange, Topic

_NONE: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True)
class Electorate:
    """The brokers that are registered, and which of them are about to stop."""

    live: frozenset[int]
    leaving: frozenset[int] = frozenset()
    unserved: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By topic: the brokers that must not lead it."""

    @functools.cached_property
    def staying(self) -> frozenset[int]:
        return self.live - self.leaving

    def barred(self, topic: str) -> frozenset[int]:
        """The brokers that do not lead the topic, even if they should."""
        return self.unserved.get(topic, _NONE)

    def may_lead(self, topic: str) -> frozenset[int]:
        """The brokers that a partition of the topic may be given to."""
        return self.staying - self.barred(topic) if self.unserved else self.staying


class ElectionType(enum.IntEnum):
    """Elections that can be requested; the numbers are those of the ElectLeaders API."""

    PREFERRED = 0
    """The first replica of the assignment, if it is alive and in sync."""
    UNCLEAN = 1
    """Any replica that is alive, if the partition has no leader, whatever is lost."""


def elect(
    topics: Iterable[Topic],
    brokers: Electorate,
    *,
    is_unclean_allowed: Callable[[Topic], bool],
    partitions_of: Callable[[Topic], Iterable[int]] = attrgetter("assignment"),
) -> list[StateChange]:
    """The changes of all partitions, or those of `partitions_of`, that are not as the rules require."""
    return [
        StateChange(topic.name, partition, before, after)
        for topic in topics
        for partition in partitions_of(topic)
        for replicas, before in ((topic.assignment[partition], topic.states.get(partition)),)
        if (after := _decided(topic, replicas, before, brokers, is_unclean_allowed)) is not None
    ]


def elect_as_asked(
    topics: Mapping[str, Topic],
    brokers: Electorate,
    asked: Mapping[tuple[str, int], ElectionType],
) -> list[StateChange]:
    """The requested changes; what is unknown, impossible or needless is left out."""
    changes = []
    for (name, partition), election_type in asked.items():
        topic = topics.get(name)
        before = None if topic is None else topic.states.get(partition)
        if topic is None or before is None:
            continue
        replicas = topic.assignment[partition]
        elected = _ELECTIONS[election_type](name, replicas, before, brokers)
        if elected is not None:
            changes.append(StateChange(name, partition, before, elected))
    return changes


def unseat(topics: Iterable[Topic], broker_ids: Collection[int]) -> list[StateChange]:
    """Takes brokers that were gone for a moment out of all leaderships and ISRs.

    They may have lost the end of their logs, so they stay in an ISR only if no other replica is in
    it.
    """
    return [
        StateChange(topic.name, partition, state, led_by(NO_LEADER, state, others or state.isr))
        for topic in topics
        for partition, state in topic.states.items()
        if state.leader in broker_ids
        for others in [tuple(one for one in state.isr if one != state.leader)]
    ]


def is_unclean(change: StateChange) -> bool:
    """Whether the new leader may lack committed records."""
    before, after = change.before, change.after
    return before is not None and after.leader != NO_LEADER and after.leader not in before.isr


def is_election(change: StateChange) -> bool:
    """Whether the leader changes."""
    before, leader = change.before, change.after.leader
    return leader != NO_LEADER and (before is None or before.leader != leader)


def _decided(
    topic: Topic,
    replicas: tuple[int, ...],
    before: LeaderAndIsr | None,
    brokers: Electorate,
    is_unclean_allowed: Callable[[Topic], bool],
) -> LeaderAndIsr | None:
    """The state to write; None if nothing."""
    if before is None:
        return _first_state(topic.name, replicas, brokers)
    return _next_state(topic.name, replicas, before, brokers, lambda: is_unclean_allowed(topic))


def _first_state(topic: str, replicas: tuple[int, ...], brokers: Electorate) -> LeaderAndIsr | None:
    alive = tuple(one for one in replicas if one in brokers.staying)
    leader = next((one for one in alive if one in brokers.may_lead(topic)), None)
    return None if leader is None else LeaderAndIsr(leader=leader, leader_epoch=0, isr=alive)


def _next_state(
    topic: str,
    replicas: tuple[int, ...],
    state: LeaderAndIsr,
    brokers: Electorate,
    is_unclean_allowed: Callable[[], bool],
) -> LeaderAndIsr | None:
    """The state to write; None if nothing."""
    in_sync = tuple(one for one in state.isr if one in replicas)
    leader, may_lead = state.leader, brokers.may_lead(topic)
    if leader in in_sync and leader in may_lead:
        staying = tuple(one for one in in_sync if one not in brokers.leaving)
        return None if staying == state.isr else led_by(leader, state, staying)
    candidates = [one for one in replicas if one in in_sync and one in may_lead]
    if candidates:
        return led_by(candidates[0], state, tuple(filter(brokers.staying.__contains__, in_sync)))
    others = [one for one in replicas if one in may_lead]
    leads_on = leader in in_sync and leader in brokers.live and leader not in brokers.barred(topic)
    if leads_on and others:
        return None
    if others and brokers.live.isdisjoint(in_sync) and is_unclean_allowed():
        return led_by(others[0], state, (others[0],))
    return None if leader == NO_LEADER else led_by(NO_LEADER, state, state.isr)


def _preferred(
    topic: str, replicas: tuple[int, ...], state: LeaderAndIsr, brokers: Electorate
) -> LeaderAndIsr | None:
    preferred = replicas[0]
    is_able = preferred in state.isr and preferred in brokers.may_lead(topic)
    if state.leader == preferred or not is_able:
        return None
    return led_by(preferred, state, tuple(filter(brokers.staying.__contains__, state.isr)))


def _unclean(
    topic: str, replicas: tuple[int, ...], state: LeaderAndIsr, brokers: Electorate
) -> LeaderAndIsr | None:
    if state.leader in brokers.live:
        return None
    return _next_state(topic, replicas, state, brokers, lambda: True)


_ELECTIONS = {ElectionType.PREFERRED: _preferred, ElectionType.UNCLEAN: _unclean}


def led_by(leader: int, state: LeaderAndIsr, isr: tuple[int, ...]) -> LeaderAndIsr:
    """The state under `leader`, one epoch later."""
    return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
