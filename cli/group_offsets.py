"""Groups as their coordinators know them, and the offsets of their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.errors import CommandError
from echoless.cli.group_targets import OffsetTarget
from echoless.cli.topic_description import EARLIEST, LATEST, offsets_at
from echoless.protocol.consumer_assignment import assigned_partitions

_GROUP_KEY: Final = 0
"""FindCoordinator: the key is a group."""
_NO_MEMBER: Final = {
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
}

Partition = tuple[str, int]
Document = dict[str, Any]


def listed_groups(cluster: ClusterConnections) -> list[Document]:
    """The groups that the brokers coordinate, by name."""
    cluster.metadata([])
    found = []
    fields: dict[str, list[str]] = {"states_filter": [], "types_filter": []}
    for broker_id in cluster.broker_ids:
        answer = cluster.request_to(broker_id, "list_groups", fields)
        check(answer.error_code, f"broker {broker_id}")
        found += [
            {
                "group": one.group_id,
                "state": one.group_state,
                "type": one.protocol_type,
                "protocol": getattr(one, "group_type", ""),
                "coordinator": broker_id,
            }
            for one in answer.groups
        ]
    return sorted(found, key=lambda one: str(one["group"]))


def coordinator_of(cluster: ClusterConnections, group: str) -> int:
    """The broker that coordinates the group, to be asked after `metadata`. Raises `CommandError`."""
    fields = {"key_type": _GROUP_KEY, "coordinator_keys": [group]}
    (found,) = cluster.request("find_coordinator", fields).coordinators
    check(found.error_code, group, found.error_message)
    return int(found.node_id)


def described_group(cluster: ClusterConnections, group: str) -> Document:
    """The group with its members and partitions. Raises `CommandError` if there is none."""
    cluster.metadata([])
    coordinator = coordinator_of(cluster, group)
    fields = {"groups": [group], "include_authorized_operations": False}
    (found,) = cluster.request_to(coordinator, "describe_groups", fields).groups
    if found.group_state == "Dead":
        consumers = _described_consumers(cluster, coordinator, group)
        if consumers is not None:
            return consumers
    check(found.error_code, group, getattr(found, "error_message", None))
    committed = _committed(cluster, coordinator, group)
    if found.group_state == "Dead" and not committed:
        raise CommandError(f"{group}: no such group (echoless groups list shows what there is)")
    owners = {
        partition: member.member_id
        for member in found.members
        for partition in assigned_partitions(member.member_assignment)
    }
    return {
        "group": group,
        "state": found.group_state,
        "protocol": found.protocol_data,
        "coordinator": coordinator,
        "members": [
            {
                "member": one.member_id,
                "instance": one.group_instance_id,
                "client_id": one.client_id,
                "host": one.client_host,
            }
            for one in found.members
        ],
        "partitions": _partition_rows(cluster, committed, owners),
    }


def _described_consumers(
    cluster: ClusterConnections, coordinator: int, group: str
) -> Document | None:
    """The group if it is one of the consumer protocol."""
    fields = {"group_ids": [group], "include_authorized_operations": False}
    try:
        answer = cluster.request_to(coordinator, "consumer_group_describe", fields)
    except CommandError:  # a broker without that protocol
        return None
    (found,) = answer.groups
    if found.error_code.name == "group_id_not_found":
        return None
    check(found.error_code, group, found.error_message)
    owners = {
        partition: member.member_id
        for member in found.members
        for partition in _partitions(member.assignment)
    }
    return {
        "group": group,
        "state": found.group_state,
        "protocol": found.assignor_name,
        "coordinator": coordinator,
        "epoch": found.group_epoch,
        "target_epoch": found.assignment_epoch,
        "members": [
            {
                "member": one.member_id,
                "instance": one.instance_id,
                "client_id": one.client_id,
                "host": one.client_host,
                "epoch": one.member_epoch,
                "assigned": _named(one.assignment),
                "target": _named(one.target_assignment),
            }
            for one in found.members
        ],
        "partitions": _partition_rows(cluster, _committed(cluster, coordinator, group), owners),
    }


def _partitions(assignment: Any) -> list[Partition]:
    topics = assignment.topic_partitions
    return [(topic.topic_name, index) for topic in topics for index in topic.partitions]


def _named(assignment: Any) -> list[str]:
    return [f"{topic}-{index}" for topic, index in sorted(_partitions(assignment))]


def _partition_rows(
    cluster: ClusterConnections, committed: Mapping[Partition, int], owners: Mapping[Partition, str]
) -> list[Document]:
    partitions = sorted({*committed, *owners})
    ends = _ends(cluster, {topic for topic, _ in partitions})
    rows = []
    for topic, index in partitions:
        at, end = committed.get((topic, index)), ends.get((topic, index))
        # A copy of the end may be older than the commit.
        lag = None if at is None or end is None else max(end - at, 0)
        row = {"topic": topic, "partition": index, "committed": at, "end": end, "lag": lag}
        rows.append({**row, "member": owners.get((topic, index))})
    return rows


def _ends(cluster: ClusterConnections, names: set[str]) -> dict[Partition, int]:
    """The ends of topics; a deleted one has none."""
    if not names:
        return {}
    topics = [one for one in cluster.metadata(sorted(names)).topics if one.error_code.value == 0]
    return offsets_at(cluster, topics, LATEST)


def _committed(cluster: ClusterConnections, coordinator: int, group: str) -> dict[Partition, int]:
    wanted = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
    fields = {"groups": [wanted], "require_stable": False}
    (found,) = cluster.request_to(coordinator, "offset_fetch", fields).groups
    check(found.error_code, group)
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in found.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


# Moving


def planned_moves(
    cluster: ClusterConnections,
    group: str,
    wanted: Mapping[str, set[int] | None],
    target: OffsetTarget,
) -> list[Document]:
    """The moves of all partitions, within what their logs hold. Raises `CommandError`."""
    topics = cluster.metadata(sorted(wanted)).topics
    for topic in topics:
        check(topic.error_code, topic.name)
    coordinator = coordinator_of(cluster, group)
    committed = _committed(cluster, coordinator, group)
    log = _Log(cluster, topics, target)
    moves = []
    for partition in _chosen(topics, wanted):
        name, index = partition
        at = committed.get(partition)
        if at is None and target.start is None:
            raise CommandError(f"--by: {group} has committed nothing for {name}-{index}; use --to")
        move = {"topic": name, "partition": index, "from": at}
        moves.append({**move, "to": log.destination(partition, at or 0)})
    return moves


class _Log:
    """The partitions' offsets, asked of their leaders once."""

    def __init__(self, cluster: ClusterConnections, topics: Any, target: OffsetTarget) -> None:
        self._target = target
        self._starts = offsets_at(cluster, topics, EARLIEST)
        self._ends = offsets_at(cluster, topics, LATEST)
        self._found: dict[Partition, int] = {}
        if target.start is not None and target.start.timestamp_ms is not None:
            self._found = offsets_at(cluster, topics, target.start.timestamp_ms)

    def destination(self, partition: Partition, committed: int) -> int:
        """The offset that the target means in this partition. Raises `CommandError`."""
        if partition not in self._ends or partition not in self._starts:
            name, index = partition
            raise CommandError(f"{name}-{index} has no leader that could be asked; try again")
        first, end = self._starts[partition], self._ends[partition]
        return min(max(self._wanted(partition, committed, first, end), first), end)

    def _wanted(self, partition: Partition, committed: int, first: int, end: int) -> int:
        start = self._target.start
        if start is None:
            return committed + (self._target.by or 0)
        if start.offset is not None:
            return start.offset
        if start.timestamp_ms is not None:
            found = self._found.get(partition, -1)
            return end if found < 0 else found
        return first if start.end == "earliest" else end


def _chosen(topics: Any, wanted: Mapping[str, set[int] | None]) -> list[Partition]:
    chosen = []
    for topic in topics:
        existing = {row.partition_index for row in topic.partitions}
        partitions = wanted[topic.name]
        for index in sorted(existing if partitions is None else partitions):
            if index not in existing:
                raise CommandError(
                    f"--topic: {topic.name} has partitions 0 to {max(existing)}, not {index}"
                )
            chosen.append((topic.name, index))
    return chosen


def commit_moves(cluster: ClusterConnections, group: str, moves: list[Document]) -> None:
    """Commits the new offsets. Raises `CommandError` while the group has members."""
    topics: dict[str, list[Document]] = {}
    for move in moves:
        row = {
            "partition_index": move["partition"],
            "committed_offset": move["to"],
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        topics.setdefault(move["topic"], []).append(row)
    listed = [{"name": name, "partitions": rows} for name, rows in topics.items()]
    fields = {"group_id": group, **_NO_MEMBER, "topics": listed}
    answer = cluster.request_to(coordinator_of(cluster, group), "offset_commit", fields)
    for topic in answer.topics:
        for row in topic.partitions:
            check(row.error_code, f"{group}: {topic.name}-{row.partition_index}")
