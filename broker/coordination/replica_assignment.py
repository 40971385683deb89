"""Which brokers hold which partition of a new topic (Kafka's rules without racks). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

from broker.coordination.node_data import Assignment
from protocol.errors import ErrorCode, KafkaError


def assign_replicas(
    broker_ids: Collection[int],
    partitions: range,
    replication_factor: int,
    rng: Random,
) -> dict[int, tuple[int, ...]]:
    """Spreads leaders over the brokers in turn, and each leader's followers over the others.

    Starts at a random broker, so that topics of one partition do not all go to the first. Raises
    `KafkaError` INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    if not partitions:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "a topic needs at least one partition")
    if replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor must be at least 1, not {replication_factor}",
        )
    if replication_factor > len(broker_ids):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {replication_factor}, "
            f"the number of brokers alive is {len(broker_ids)}",
        )
    brokers = sorted(broker_ids)
    start, shift = rng.randrange(len(brokers)), rng.randrange(len(brokers))
    return {
        partition: _replicas(brokers, start + partition, shift + partition // len(brokers))[
            :replication_factor
        ]
        for partition in partitions
    }


def _replicas(brokers: Sequence[int], leader_index: int, shift: int) -> tuple[int, ...]:
    """All brokers, the leader first; `shift` varies who follows it."""
    leader_index %= len(brokers)
    others = [*brokers[leader_index + 1 :], *brokers[:leader_index]]
    if others:
        shift %= len(others)
    return (brokers[leader_index], *others[shift:], *others[:shift])


def check_assignment(
    assignment: Mapping[int, Sequence[int]], partitions: range, broker_ids: Collection[int]
) -> Assignment:
    """The explicit assignment of exactly these partitions, in their order.

    Raises `KafkaError` INVALID_REPLICA_ASSIGNMENT: partitions missing or surplus, no replicas, one
    broker twice, unequal numbers of replicas, or a broker that is not alive.
    """
    if sorted(assignment) != list(partitions) or not partitions:
        raise _invalid(
            f"partitions {sorted(assignment)} are assigned, "
            f"expected {partitions.start} to {partitions.stop - 1}"
        )
    factor = len(assignment[partitions.start])
    for partition in partitions:
        replicas = assignment[partition]
        if not replicas or len(set(replicas)) != len(replicas):
            raise _invalid(f"partition {partition} has the replicas {list(replicas)}")
        if len(replicas) != factor:
            raise _invalid(
                f"partition {partition} has {len(replicas)} replicas, "
                f"partition {partitions.start} has {factor}"
            )
        if not set(replicas) <= set(broker_ids):
            unknown = sorted(set(replicas) - set(broker_ids))
            raise _invalid(f"partition {partition} is assigned to unknown brokers {unknown}")
    return {partition: tuple(assignment[partition]) for partition in partitions}


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
