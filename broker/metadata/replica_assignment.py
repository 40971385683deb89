"""The assignment of a new topic's partitions to brokers. Pure.

With racks, the replicas of a partition are spread over as many racks as there are, so that it outlives
the loss of one. Racks count where every broker alive has one; where only some have, none counts
(Kafka's `RackAwareMode.Safe`), so that racks can be introduced one broker at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from random import Random
from types import MappingProxyType
from typing import Final

from echoless.protocol.errors import ErrorCode, KafkaError

PARTITIONS_MAX: Final = 10_000
"""Limit of one request, as in Kafka's own controller: a typing error must not fill the memory."""


def assign_replicas(
    broker_ids: Collection[int],
    partitions: range,
    replication_factor: int,
    rng: Random,
    racks: Mapping[int, str | None] = MappingProxyType({}),
) -> dict[int, tuple[int, ...]]:
    """Spreads leaders over the brokers in turn, and each leader's followers over the others.

    `racks` says where brokers stand; one that is not in it has no rack. Starts at a random broker, so
    that topics of one partition do not all go to the first. The pattern repeats, and each of its places
    is worked out once: thousands of partitions must not hold the event loop. Raises `KafkaError`
    INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
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
    rack_of = _known_racks(broker_ids, racks)
    brokers = _alternating(sorted(broker_ids), rack_of)
    start, shift = rng.randrange(len(brokers)), rng.randrange(len(brokers))
    others = max(len(brokers) - 1, 1)
    known: dict[tuple[int, int], tuple[int, ...]] = {}
    assignment = {}
    for partition in partitions:
        leader, turned = (
            (start + partition) % len(brokers),
            (shift + partition // len(brokers)) % others,
        )
        replicas = known.get((leader, turned))
        if replicas is None:
            candidates = _replicas(brokers, leader, turned)
            replicas = known[leader, turned] = _spread(candidates, rack_of)[:replication_factor]
        assignment[partition] = replicas
    return assignment


def _known_racks(broker_ids: Collection[int], racks: Mapping[int, str | None]) -> dict[int, str]:
    """The rack of every broker; without racks each broker is on its own."""
    known = {one: rack for one in broker_ids if (rack := racks.get(one)) is not None}
    return known if len(known) == len(broker_ids) else {one: str(one) for one in broker_ids}


def _alternating(brokers: Sequence[int], rack_of: Mapping[int, str]) -> list[int]:
    """One broker of each rack in turn, so that neighbours are in different racks."""
    by_rack: defaultdict[str, list[int]] = defaultdict(list)
    for broker in brokers:
        by_rack[rack_of[broker]].append(broker)
    rounds = zip_longest(*by_rack.values())
    return [broker for round_ in rounds for broker in round_ if broker is not None]


def _spread(candidates: Sequence[int], rack_of: Mapping[int, str]) -> tuple[int, ...]:
    """The first of each rack, then the second of each, ...; the leader stays the first of all."""
    seen: Counter[str] = Counter()
    places = []
    for broker in candidates:
        places.append((seen[rack_of[broker]], broker))
        seen[rack_of[broker]] += 1
    return tuple(broker for _, broker in sorted(places, key=lambda place: place[0]))


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
    """All brokers, the leader first; `shift`, less than the others are, varies who follows it."""
    others = [*brokers[leader_index + 1 :], *brokers[:leader_index]]
    return (brokers[leader_index], *others[shift:], *others[:shift])


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    partitions: range,
    broker_ids: Collection[int],
    replication_factor: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Returns the explicit assignment of exactly these partitions, in their order.

    Without a replication factor the first partition sets it. Raises `KafkaError`
    INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT: partitions missing or surplus, no replicas, one
    broker twice, another number of replicas, or a broker that is not alive.
    """
    check_partition_count(partitions)
    if sorted(assignment) != list(partitions):
        raise _invalid(
            f"partitions {sorted(assignment)} are assigned, "
            f"expected {partitions.start} to {partitions.stop - 1}"
        )
    factor, known = replication_factor or len(assignment[partitions.start]), set(broker_ids)
    for partition in partitions:
        replicas = assignment[partition]
        if not replicas or len(set(replicas)) != len(replicas):
            raise _invalid(f"partition {partition} has the replicas {list(replicas)}")
        if len(replicas) != factor:
            raise _invalid(
                f"partition {partition} has {len(replicas)} replicas, the others have {factor}"
            )
        if not known.issuperset(replicas):
            unknown = sorted(set(replicas) - known)
            raise _invalid(f"partition {partition} is assigned to unknown brokers {unknown}")
    return {partition: tuple(assignment[partition]) for partition in partitions}


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
