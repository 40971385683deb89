"""A topic as the cluster knows it, and what can happen to it.

A `Topic` is one version: immutable, replaced as a whole, with the node versions that the next
conditional write needs. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from echoless.broker.metadata.node_data import (
    Assignment,
    LeaderAndIsr,
    Predecessor,
    Reassignment,
)

NO_NODE: Final = -1


class Topic(NamedTuple):
    """One topic: id, assignment, partition states and configuration overrides."""

    name: str
    topic_id: uuid.UUID
    assignment: Assignment
    """Partitions 0, 1, ... in ascending order, with their replicas."""
    states: Mapping[int, LeaderAndIsr]
    """A partition that was never led has none: a broker alone, or the controller, gives it the first."""
    config: Mapping[str, str]
    """Overrides only, by Kafka's dotted names; not validated here."""
    node_version: int = 0
    config_version: int = NO_NODE
    """Version of the configuration node; -1 if there is none."""
    reassignments: Mapping[int, Reassignment] = MappingProxyType({})
    """Reassignments of partitions that are on their way to other replicas."""
    has_id_node: bool = False
    """Whether there is a node that tells it from a later topic of the same name; Kafka makes none."""
    predecessor: Predecessor | None = None
    """The deleted topic of the same name, if one is known: its producers may go on in this one."""

    def at_least_as_new_as(self, known: Topic | None) -> Topic:
        """This topic, with what is newer in the `known` version of it.

        A server that lags behind can answer with what was before.
        """
        if known is None or known.topic_id != self.topic_id:
            return self
        states = {
            partition: state
            if known.states.get(partition, state).node_version <= state.node_version
            else known.states[partition]
            for partition, state in self.states.items()
        }
        if known.node_version <= self.node_version:
            return self._replace(states=states)
        return self._replace(
            assignment=known.assignment,
            reassignments=known.reassignments,
            node_version=known.node_version,
            states={**known.states, **states},
        )

    def with_newer_states(self, states: Mapping[int, LeaderAndIsr]) -> Topic:
        """This topic, with those of the states that are newer than its own."""
        newer = {
            partition: state
            for partition, state in states.items()
            if partition not in self.states
            or self.states[partition].node_version < state.node_version
        }
        if not newer:
            return self
        states = {**self.states, **newer}
        if len(states) > len(self.states):
            states = dict(sorted(states.items()))
        return self._replace(states=states)

    def with_newer_assignment(
        self,
        assignment: Assignment,
        reassignments: Mapping[int, Reassignment],
        node_version: int,
    ) -> Topic:
        """This topic, with what its node of this version says unless that is older."""
        if node_version <= self.node_version:
            return self
        return self._replace(
            assignment=assignment, reassignments=reassignments, node_version=node_version
        )

    @property
    def partition_count(self) -> int:
        return len(self.assignment)

    @property
    def replication_factor(self) -> int:
        """The number of the first partition's replicas, without those that it is to lose."""
        move = self.reassignments.get(0)
        return len(self.assignment[0]) - (0 if move is None else len(move.removing))


class Relocation(NamedTuple):
    """The replicas that a partition is to have."""

    replicas: tuple[int, ...]
    moving: Reassignment | None = None
    """The way to them; None: none is under way any more."""


class NewTopic(NamedTuple):
    """The topic to create. An explicit `assignment` overrides both numbers."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    assignment: Mapping[int, tuple[int, ...]] | None = None
    config: Mapping[str, str] = MappingProxyType({})


class StateChange(NamedTuple):
    """The intended change of one partition's state."""

    topic: str
    partition: int
    before: LeaderAndIsr | None
    """The state that the decision knew, with the node version that the write depends on; None: no state yet."""
    after: LeaderAndIsr
    """Its `node_version` says nothing."""


class TopicCreated(NamedTuple):
    """The topic is there; a partition may have no state yet."""

    topic: Topic


class TopicChanged(NamedTuple):
    """Assignment, states or configuration changed; name and id are the same."""

    before: Topic
    after: Topic

    def partitions(self) -> list[int]:
        """The partitions whose replicas or state changed, new ones included."""
        before, after = self
        same = before.assignment is after.assignment
        return [
            partition
            for partition, replicas in after.assignment.items()
            if _differ(before.states.get(partition), after.states.get(partition))
            or not (same or before.assignment.get(partition) == replicas)
        ]


class TopicDeleted(NamedTuple):
    """The topic is gone. One of the same name with another id may follow."""

    topic: Topic


TopicEvent = TopicCreated | TopicChanged | TopicDeleted


def _differ(one: LeaderAndIsr | None, other: LeaderAndIsr | None) -> bool:
    """Compares states; of a large topic nearly all are the same objects."""
    return one is not other and one != other
