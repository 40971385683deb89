"""Requested elections: Kafka's node `/admin/preferred_replica_election`.

The requester writes the partitions into the node; the controller holds the elections and deletes
it. Kafka's node is for preferred elections only; an entry of ours may also say
`"election_type":"unclean"`, which Kafka's tools ignore. While the node exists, more requests are
added to it by conditional writes, and the controller deletes exactly the version that it has read,
so that none is lost.

    {"version":1,"partitions":[{"topic":"orders","partition":0},
                               {"topic":"orders","partition":1,"election_type":"unclean"}]}

Called by the handler of ElectLeaders and by the controller.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from echoless.broker.controller.elections import ElectionType
from echoless.broker.metadata.node_data import PREFERRED_REPLICA_ELECTION, NodeDataError
from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import (
    BadVersionError,
    ConnectionLostError,
    NodeExistsError,
    NodeTree,
    NoNodeError,
    ensure_paths,
    parent_of,
)

_ATTEMPTS_MAX: Final = 10
"""Attempts at one request while others write the same node."""

Requests = Mapping[tuple[str, int], ElectionType]
"""(Topic, partition) -> the election requested for it."""


class Asked(NamedTuple):
    """The node as it was read."""

    elections: Requests
    version: int


async def ask(tree: NodeTree, elections: Requests) -> None:
    """Adds to the pending requests. Asking twice is harmless, so a lost answer is too.

    Raises `CoordinationError` when there is no session, or when every attempt loses a race.
    """
    await ensure_paths(tree, [parent_of(PREFERRED_REPLICA_ELECTION)])
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            await _add(tree, elections)
        except (NodeExistsError, NoNodeError, BadVersionError, ConnectionLostError):
            if attempt == _ATTEMPTS_MAX:
                raise
        else:
            return


async def read_asked(tree: NodeTree) -> Asked | None:
    """Reads the pending requests; None if there are none. Raises `NodeDataError`."""
    node = (await tree.read_many([PREFERRED_REPLICA_ELECTION]))[0]
    return None if node is None else Asked(decode_requests(node.data), node.version)


async def _add(tree: NodeTree, elections: Requests) -> None:
    asked = await read_asked(tree)
    if asked is None:
        await tree.create(PREFERRED_REPLICA_ELECTION, encode_requests(elections))
    else:
        data = encode_requests({**asked.elections, **elections})
        await tree.write(PREFERRED_REPLICA_ELECTION, data, asked.version)


def encode_requests(elections: Requests) -> bytes:
    """The node's data."""
    partitions = [
        {"topic": topic, "partition": partition, **_type_field(election_type)}
        for (topic, partition), election_type in elections.items()
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":")).encode()


def decode_requests(data: bytes) -> dict[tuple[str, int], ElectionType]:
    """Raises `NodeDataError`."""
    try:
        return {
            (str(entry["topic"]), int(entry["partition"])): _type_of(entry)
            for entry in decode_node_json(data)["partitions"]
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NodeDataError(
            f"the node {PREFERRED_REPLICA_ELECTION} holds what cannot be read: {data!r}"
        ) from error


def _type_field(election_type: ElectionType) -> dict[str, str]:
    is_preferred = election_type is ElectionType.PREFERRED
    return {} if is_preferred else {"election_type": election_type.name.lower()}


def _type_of(entry: Mapping[str, Any]) -> ElectionType:
    return ElectionType[str(entry.get("election_type", "preferred")).upper()]
