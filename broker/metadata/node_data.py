"""Paths in the node tree, and the JSON of their nodes: Kafka's own paths and fields.

Encoding is compact JSON with the fields in a fixed order; decoding takes any order and ignores
fields it does not know, so that nodes written by Kafka can be read. Examples of every node are in
`docs/formats/coordination-nodes.md` and are golden tests. The brokers' own nodes are in
`registration.py`, the producer-id block in `producer_id_block.py`.

Pure. Knows nothing of when nodes are read and written.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import CoordinationError, Node

BROKERS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
TOPIC_DELETIONS: Final = "/admin/delete_topics"
TOPIC_PREDECESSORS: Final = "/admin/deleted_topics"
CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
"""Ephemeral: its broker is the controller."""
CONTROLLER_EPOCH: Final = "/controller_epoch"
"""The number of controllers so far; every write of a controller depends on its version."""
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
"""Exists while elections are requested; see `broker/controller/election_requests.py`."""

NO_LEADER: Final = -1

Assignment = Mapping[int, tuple[int, ...]]
"""Partition -> broker ids of its replicas, the preferred leader first."""


class Reassignment(NamedTuple):
    """A partition on its way to other replicas; its assignment is all of them until it is done."""

    adding: tuple[int, ...]
    """Replicas not yet in sync, or not yet known to be."""
    removing: tuple[int, ...]
    """Replicas to remove once all that are added are in sync."""


class Predecessor(NamedTuple):
    """A deleted topic, as a later one of the same name knows it."""

    last_producer_id: int
    """The last id of the newest block at the deletion: ids above it never wrote to the topic."""
    partitions: int


class TopicData(NamedTuple):
    """The content of a topic's node."""

    topic_id: uuid.UUID
    assignment: dict[int, tuple[int, ...]]
    """Partitions in ascending order."""
    reassignments: dict[int, Reassignment]


class NodeDataError(CoordinationError):
    """A node's data makes no sense; the message names the node and the content."""


def broker_path(broker_id: int) -> str:
    """Ephemeral: the broker is alive."""
    return f"{BROKERS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The topic's id and assignment."""
    return f"{TOPICS}/{topic}"


def topic_id_path(topic: str, topic_id: uuid.UUID) -> str:
    """Exists as long as the topic with this id: tells it from a later one of the same name."""
    return f"{TOPICS}/{topic}/{encode_uuid(topic_id)}"


def topic_predecessor_path(topic: str) -> str:
    """The predecessor that a deleted topic leaves, until there is one of the same name."""
    return f"{TOPIC_PREDECESSORS}/{topic}"


def topic_config_path(topic: str) -> str:
    """The topic's configuration overrides."""
    return f"{TOPIC_CONFIGS}/{topic}"


def topic_deletion_path(topic: str) -> str:
    """Exists while the topic is being deleted."""
    return f"{TOPIC_DELETIONS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of the topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The parent of one partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    """Leader, leader epoch and ISR of one partition."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


class LeaderAndIsr(NamedTuple):
    """A partition's leader and in-sync replicas."""

    leader: int
    """Broker id; -1 if none."""
    leader_epoch: int
    """Grows by one at every change of the leader, and at every restart of it."""
    isr: tuple[int, ...]
    controller_epoch: int = 0
    """The epoch of the controller that wrote it; 0 if there was none."""
    node_version: int = 0
    """The version of the node that holds it, for the next conditional write; not in the data."""


def encode_partition_state(state: LeaderAndIsr) -> bytes:
    """The data of `partition_state_path`."""
    return _encode(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_partition_state(path: str, node: Node) -> LeaderAndIsr:
    """Raises `NodeDataError`."""
    try:
        fields = _decode(node.data)
        return LeaderAndIsr(
            leader=int(fields["leader"]),
            leader_epoch=int(fields["leader_epoch"]),
            isr=tuple(int(broker) for broker in fields["isr"]),
            controller_epoch=int(fields["controller_epoch"]),
            node_version=node.version,
        )
    except (ValueError, TypeError, KeyError) as error:
        raise _senseless(path, node.data) from error


def encode_topic(
    topic_id: uuid.UUID,
    assignment: Assignment,
    reassignments: Mapping[int, Reassignment] | None = None,
) -> bytes:
    """The data of `topic_path`."""
    moves = (reassignments or {}).items()
    return _encode(
        {
            "version": 3,
            "topic_id": encode_uuid(topic_id),
            "partitions": {str(partition): list(assignment[partition]) for partition in assignment},
            "adding_replicas": {str(partition): list(move.adding) for partition, move in moves},
            "removing_replicas": {str(partition): list(move.removing) for partition, move in moves},
        }
    )


def decode_topic(path: str, data: bytes) -> TopicData:
    """Raises `NodeDataError`."""
    try:
        fields = _decode(data)
        topic_id = decode_uuid(fields["topic_id"])
        assignment = _decode_replicas(fields["partitions"])
        adding = _decode_replicas(fields.get("adding_replicas", {}))
        removing = _decode_replicas(fields.get("removing_replicas", {}))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _senseless(path, data) from error
    is_whole = assignment and list(assignment) == list(range(len(assignment)))
    if not is_whole or not all(assignment.values()):
        raise _senseless(path, data)
    reassignments = {
        partition: Reassignment(adding.get(partition, ()), removing.get(partition, ()))
        for partition in assignment
        if adding.get(partition) or removing.get(partition)
    }
    return TopicData(topic_id, assignment, reassignments)


def _decode_replicas(fields: Mapping[str, Iterable[int]]) -> dict[int, tuple[int, ...]]:
    replicas = {int(partition): ids for partition, ids in fields.items()}
    return {
        partition: tuple(int(broker) for broker in replicas[partition])
        for partition in sorted(replicas)
    }


def encode_predecessor(predecessor: Predecessor) -> bytes:
    """The data of `topic_predecessor_path`, and of `topic_id_path` for a topic that has one."""
    return _encode(
        {
            "version": 1,
            "last_producer_id": str(predecessor.last_producer_id),
            "partitions": predecessor.partitions,
        }
    )


def decode_predecessor(path: str, data: bytes) -> Predecessor | None:
    """None if there is no data. Raises `NodeDataError`."""
    if not data:
        return None
    try:
        fields = _decode(data)
        return Predecessor(int(fields["last_producer_id"]), int(fields["partitions"]))
    except (ValueError, TypeError, KeyError) as error:
        raise _senseless(path, data) from error


def encode_config(config: Mapping[str, str]) -> bytes:
    """The data of `topic_config_path`, and of the other nodes below `/config`."""
    return _encode({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Raises `NodeDataError`."""
    try:
        config = _decode(data)["config"]
        return {str(name): str(value) for name, value in config.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _senseless(path, data) from error


def encode_cluster_id(cluster_id: str) -> bytes:
    """The data of `CLUSTER_ID`."""
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """Raises `NodeDataError`."""
    try:
        return str(_decode(data)["id"])
    except (ValueError, TypeError, KeyError) as error:
        raise _senseless(CLUSTER_ID, data) from error


def encode_controller(broker_id: int, elected_ms: int) -> bytes:
    """The data of `CONTROLLER`."""
    return _encode({"version": 1, "brokerid": broker_id, "timestamp": str(elected_ms)})


def decode_controller(data: bytes) -> int:
    """The broker id. Raises `NodeDataError`."""
    try:
        return int(_decode(data)["brokerid"])
    except (ValueError, TypeError, KeyError) as error:
        raise _senseless(CONTROLLER, data) from error


def encode_controller_epoch(epoch: int) -> bytes:
    """The data of `CONTROLLER_EPOCH`."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    """Raises `NodeDataError`."""
    try:
        return int(data)
    except ValueError as error:
        raise _senseless(CONTROLLER_EPOCH, data) from error


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka's text form: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Raises `ValueError`."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _encode(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    fields = decode_node_json(data)
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    return fields


def _senseless(path: str, data: bytes) -> NodeDataError:
    return NodeDataError(f"the node {path} holds what cannot be read: {data!r}")
