"""Changes of a topic: each returns its next version, or raises the error that Kafka gives. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from random import Random

from echoless.broker.metadata.leadership import initial_state
from echoless.broker.metadata.node_data import Assignment, LeaderAndIsr
from echoless.broker.metadata.registration import BrokerInfo
from echoless.broker.metadata.replica_assignment import assign_replicas, check_assignment
from echoless.broker.metadata.topic import NewTopic, Relocation, StateChange, Topic
from echoless.protocol.errors import ErrorCode, KafkaError

Brokers = Mapping[int, BrokerInfo]
"""The registered brokers."""


def new_topic(new: NewTopic, topic_id: uuid.UUID, brokers: Brokers, rng: Random) -> Topic:
    """Makes a new topic.

    Raises `KafkaError` INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
    """
    if new.assignment is None:
        partitions = range(new.partitions)
        assignment = _assign(brokers, partitions, new.replication_factor, rng)
    else:
        partitions = range(len(new.assignment))
        assignment = check_assignment(new.assignment, partitions, brokers)
    return Topic(
        name=new.name,
        topic_id=topic_id,
        assignment=assignment,
        states=_initial_states(assignment, brokers),
        config=dict(new.config),
        has_id_node=True,
    )


def extended(
    before: Topic, count: int, explicit: Assignment | None, brokers: Brokers, rng: Random
) -> Topic:
    """The topic with `count` partitions; `explicit` is for the new ones. Raises as `new_topic`."""
    if count <= before.partition_count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {before.name!r} has {before.partition_count} partitions, "
            f"which cannot become {count}",
        )
    partitions, factor = range(before.partition_count, count), before.replication_factor
    if explicit is None:
        added = _assign(brokers, partitions, factor, rng)
    else:
        added = check_assignment(explicit, partitions, brokers, factor)
    return before._replace(
        assignment={**before.assignment, **added},
        states={**before.states, **_initial_states(added, brokers)},
        node_version=before.node_version + 1,
    )


def reassigned(before: Topic, relocations: Mapping[int, Relocation]) -> Topic:
    """The topic with other replicas of some partitions. Raises UNKNOWN_TOPIC_OR_PARTITION."""
    assignment, reassignments = dict(before.assignment), dict(before.reassignments)
    for partition, (replicas, moving) in relocations.items():
        if partition not in assignment:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{before.name}-{partition} does not exist"
            )
        assignment[partition] = replicas
        reassignments.pop(partition, None)
        if moving is not None:
            reassignments[partition] = moving
    return before._replace(
        assignment=assignment,
        reassignments=dict(sorted(reassignments.items())),
        node_version=before.node_version + 1,
    )


def with_states(topic: Topic, changes: Iterable[StateChange]) -> Topic:
    """The topic with changes of its states, once they have been written."""
    states = dict(topic.states)
    for change in changes:
        version = 0 if change.before is None else change.before.node_version + 1
        states[change.partition] = change.after._replace(node_version=version)
    if len(states) > len(topic.states):
        states = dict(sorted(states.items()))
    return topic._replace(states=states)


def _assign(
    brokers: Brokers, partitions: range, factor: int, rng: Random
) -> dict[int, tuple[int, ...]]:
    racks = {broker_id: info.rack for broker_id, info in brokers.items()}
    return assign_replicas(brokers, partitions, factor, rng, racks)


def _initial_states(assignment: Assignment, brokers: Brokers) -> dict[int, LeaderAndIsr]:
    """First states of new partitions: only brokers that are there to stay count.

    Partitions of the same replicas share one: there are thousands of partitions, and few states.
    """
    able = {broker_id for broker_id, info in brokers.items() if not info.is_leaving}
    state_of = {replicas: initial_state(replicas, able) for replicas in set(assignment.values())}
    return {partition: state_of[replicas] for partition, replicas in assignment.items()}
