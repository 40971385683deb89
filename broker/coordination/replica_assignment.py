"""Which brokers hold which partition of a new topic (Kafka's rules without racks). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Final

from protocol.errors import ErrorCode, KafkaError

PARTITIONS_MAX: Final = 10_000
"""In one request, as with Kafka's own controller: nobody's typing error shall fill the memory."""


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
    check_partition_count(partitions)
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


def check_partition_count(partitions: range) -> None:
    """Raises `KafkaError` INVALID_PARTITIONS for none, or for more than are made at once."""
    if not partitions:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "at least one partition is needed")
    if len(partitions) > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{len(partitions)} partitions are asked for, at most {PARTITIONS_MAX} are made at once",
        )


def _replicas(brokers: Sequence[int], leader_index: int, shift: int) -> tuple[int, ...]:
    """All brokers, the leader first; `shift` varies who follows it."""
    leader_index %= len(brokers)
    others = [*brokers[leader_index + 1 :], *brokers[:leader_index]]
    if others:
        shift %= len(others)
    return (brokers[leader_index], *others[shift:], *others[:shift])


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    partitions: range,
    broker_ids: Collection[int],
    replication_factor: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """The explicit assignment of exactly these partitions, in their order.

    Without a replication factor the first partition sets it. Raises `KafkaError` INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT: partitions missing or surplus, no replicas, one broker twice, another
    number of replicas, or a broker that is not alive.
    """
    check_partition_count(partitions)
    if sorted(assignment) != list(partitions):
        raise _invalid(
            f"partitions {sorted(assignment)} are assigned, "
            f"expected {partitions.start} to {partitions.stop - 1}"
        )
    factor = replication_factor or len(assignment[partitions.start])
    for partition in partitions:
        replicas = assignment[partition]
        if not replicas or len(set(replicas)) != len(replicas):
            raise _invalid(f"partition {partition} has the replicas {list(replicas)}")
        if len(replicas) != factor:
            raise _invalid(
                f"partition {partition} has {len(replicas)} replicas, the others have {factor}"
            )
        if not set(replicas) <= set(broker_ids):
            unknown = sorted(set(replicas) - set(broker_ids))
            raise _invalid(f"partition {partition} is assigned to unknown brokers {unknown}")
    return {partition: tuple(assignment[partition]) for partition in partitions}


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
