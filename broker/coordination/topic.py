"""A topic as the cluster knows it, and what can happen to it.

A `Topic` is one version: immutable, replaced as a whole, with the node versions that the next
conditional write needs. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.coordination.node_data import Assignment, PartitionState

NO_NODE: Final = -1


@dataclass(slots=True, frozen=True, kw_only=True)
class Topic:
    """One topic: id, assignment, partition states and configuration overrides."""

    name: str
    topic_id: uuid.UUID
    assignment: Assignment
    """Partitions 0, 1, ... in ascending order, with their replicas."""
    states: Mapping[int, PartitionState]
    """A partition that was never led has none; after the start of its leader every one has."""
    config: Mapping[str, str]
    """Overrides only, by Kafka's dotted names; not validated here."""
    node_version: int = 0
    config_version: int = NO_NODE
    """Version of the configuration node; -1: there is none."""

    @property
    def partition_count(self) -> int:
        return len(self.assignment)

    @property
    def replication_factor(self) -> int:
        return len(self.assignment[0])


@dataclass(slots=True, frozen=True, kw_only=True)
class NewTopic:
    """What a topic shall be. An explicit `assignment` overrides both numbers."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    assignment: Mapping[int, tuple[int, ...]] | None = None
    config: Mapping[str, str] = field(default_factory=dict)


class TopicCreated(NamedTuple):
    """The topic is there, with a leader for each partition."""

    topic: Topic


class TopicChanged(NamedTuple):
    """Partitions were added, or states or configuration changed; name and id are the same."""

    before: Topic
    after: Topic


class TopicDeleted(NamedTuple):
    """The topic is gone. One of the same name with another id may follow."""

    topic: Topic


TopicEvent = TopicCreated | TopicChanged | TopicDeleted
