"""The state when everything has healed: every partition led, every replica back, everything stored."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from tests.simulation.checkers import compacted, delivery, nodes, replicas
from tests.simulation.checkers.logs import ReplicaLog, read_log
from tests.simulation.checkers.originals import original_batches
from tests.simulation.observations import Append, Poll, Spot

if TYPE_CHECKING:
    from echoless.broker.partitions.partition import Partition
    from tests.simulation.cluster import Cluster


def judge(cluster: Cluster) -> None:
    """Puts every broken promise into the cluster's findings."""
    spots = [spot for spot in cluster.spots if spot.topic not in cluster.passing]
    # What coordinators append to internal topics is judged by `checkers/groups.py`.
    cleaned = [spot for spot in spots if spot.topic in {*cluster.compacted, *INTERNAL_TOPICS}]
    plain = [spot for spot in spots if spot not in cleaned]
    observations = cluster.observations
    faults = [
        *replicas.one_leader_per_epoch(_appends_to(cluster, plain)),
        *replicas.one_record_per_offset(_appends_to(cluster, cleaned)),
        *nodes.unique_ids(observations.producer_ids),
        *nodes.sound_states(observations.state_changes),
    ]
    for spot in cluster.spots:
        if spot.topic not in INTERNAL_TOPICS:
            faults += _faults_of(cluster, spot, is_promised=spot in spots)
    for fault in faults:
        observations.find(fault)


def judge_states_now(cluster: Cluster) -> None:
    """Checks, at any time, that replicas whose logs end with the same offset and epoch know the same producers.

    Leader epochs ensure that such logs are the same.
    """
    for spot in cluster.spots:
        alike: dict[tuple[int, int, uuid.UUID], dict[str, replicas.State]] = {}
        for node, partition in partitions_of(cluster, spot).items():
            log = partition.log
            end = log.log_end_offset, log.leader_epochs.latest_epoch, partition.topic_id
            # A new leader has its epoch, but no batch of it yet.
            alike.setdefault(end, {})[node] = _state_of(partition)
        for states in alike.values():
            for fault in replicas.equal_states(str(spot), states):
                cluster.observations.find(fault)


def judge_claims_now(cluster: Cluster) -> None:
    """Checks, at any time, that followers really have what their leaders count: sessions keep claims for long."""
    brokers = {
        machine.broker_id: machine.broker
        for machine in cluster.machines.values()
        if machine.broker is not None
    }
    epochs = {one: broker.membership.registered_epoch(one) for one, broker in brokers.items()}
    registries = {one: broker.partitions for one, broker in brokers.items()}
    for spot in cluster.spots:
        for leader_id, registry in registries.items():
            leader = registry.get(spot)
            if leader is None or leader.in_sync is None:
                continue
            for follower_id in leader.replicas:
                others = registries.get(follower_id) if follower_id != leader_id else None
                follower = None if others is None else others.get(spot)
                if follower is None or not _counts(leader, follower, follower_id, epochs):
                    continue
                claimed = leader.in_sync.log_end_offset(follower_id)
                if follower.log.log_end_offset < claimed:
                    cluster.observations.find(
                        f"{spot}: broker-{leader_id} counts on broker {follower_id} up to {claimed}, whose log ends at "
                        f"{follower.log.log_end_offset}"
                    )


def _counts(
    leader: Partition, follower: Partition, follower_id: int, epochs: Mapping[int, int | None]
) -> bool:
    """Whether a claim is of the follower's present life, and neither of them knows of a later leader."""
    assert leader.in_sync is not None
    return (
        follower.topic_id == leader.topic_id
        and follower.leader_epoch == leader.leader_epoch
        and leader.in_sync.broker_epoch(follower_id) == epochs[follower_id]
    )


def _appends_to(cluster: Cluster, spots: list[Spot]) -> Iterator[Append]:
    """The bytes of these partitions that any disk took."""
    directories = {f"{spot.topic}-{spot.partition}" for spot in spots}
    return (one for one in cluster.observations.appends if one.directory in directories)


def _faults_of(cluster: Cluster, spot: Spot, *, is_promised: bool) -> Iterator[str]:
    held = partitions_of(cluster, spot)
    leaders = [node for node, partition in held.items() if partition.is_leader]
    if len(leaders) != 1:
        yield f"{spot}: led by {leaders}"
        return
    (leader,) = leaders
    logs = {node: log_of(cluster, node, spot, held[node]) for node in held}
    ordered = [logs[leader], *(logs[node] for node in held if node != leader)]
    original = ordered[0]
    polls = [poll for poll in cluster.observations.polls if poll.spot == spot]
    if spot.topic in cluster.compacted:
        original = original_log(cluster, spot, held[leader])
        for log in ordered:
            yield from compacted.faults_of_log(str(spot), original, log)
        gone = compacted.cleaned_away(original, ordered[0])
        cluster.observations.more_counts["records cleaned away"] += gone
        yield from compacted.faults_of_polls(str(spot), original, polls)
        polls = []
    else:
        for log in ordered:
            yield from log.faults()
        yield from replicas.equal_logs(str(spot), ordered)
    states = {node: _state_of(held[node]) for node in held}
    for log in ordered:
        window = held[log.node].log.producers.window
        whole = original._replace(node=log.node) if spot.topic in cluster.compacted else log
        yield from replicas.state_follows_from_log(str(spot), whole, states[log.node], window)
    yield from replicas.equal_states(str(spot), states)
    if is_promised and spot.topic not in cluster.transactional:
        yield from _faults_of_delivery(cluster, spot, original, polls)


def _faults_of_delivery(
    cluster: Cluster, spot: Spot, log: ReplicaLog, polls: list[Poll]
) -> Iterator[str]:
    observations = cluster.observations
    sent = [batch for batch in observations.batches if batch.spot == spot]
    seeks = [seek for seek in observations.seeks if seek.spot == spot]
    appends = list(_appends_to(cluster, [spot]))
    yield from delivery.Delivery(spot, sent, polls, log, seeks=seeks, appends=appends).faults()


def original_log(cluster: Cluster, spot: Spot, partition: Partition) -> ReplicaLog:
    """The log of a replica as it would be had no one cleaned it."""
    log = partition.log
    appends = _appends_to(cluster, [spot])
    batches = original_batches(appends, log.leader_epochs.entries, log.log_end_offset)
    return ReplicaLog("what was appended", 0, batches)


def partitions_of(cluster: Cluster, spot: Spot) -> dict[str, Partition]:
    """The replicas on running brokers, by node."""
    held = {}
    for machine in cluster.machines.values():
        partition = None if machine.broker is None else machine.broker.partitions.get(spot)
        if partition is not None:
            held[machine.node] = partition
    return held


def log_of(cluster: Cluster, node: str, spot: Spot, partition: Partition) -> ReplicaLog:
    """The replica's log as it lies on the disk."""
    machine = cluster.machines[int(node.removeprefix("broker-"))]
    directory = f"{machine.config.data_dir}/{spot.topic}-{spot.partition}"
    segments = machine.disk.read_segments(directory)
    return read_log(node, partition.log.log_start_offset, segments)


def _state_of(partition: Partition) -> replicas.State:
    producers = partition.log.producers
    return {
        producer_id: replicas.KnownProducer(
            entry.producer_epoch,
            tuple(
                replicas.KnownBatch(
                    batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset
                )
                for batch in entry.batches
            ),
            producers.open_transaction(producer_id),
            producers.last_marker(producer_id),
        )
        for producer_id, entry in producers.items()
    }
