"""Configuration nodes of the tree, `/config/<kind>/<name>`, as Kafka 3.9 stores it for users, clients, addresses and brokers.

A node holds one map of texts, to which several parts of a broker add: a user has credentials and quotas. After each
change a node in `/config/changes` tells every broker, Kafka's too. No cache. Called by `user_nodes.py`,
`quota_nodes.py` and `broker_settings.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Final

from echoless.broker.metadata.node_data import NodeDataError, encode_config
from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import (
    BadVersionError,
    NodeExistsError,
    NodeTree,
    NoNodeError,
    ensure_paths,
    parent_of,
)
from echoless.protocol.errors import ErrorCode, KafkaError

CONFIG: Final = "/config"
USERS: Final = "/config/users"
CHANGES: Final = "/config/changes"
DEFAULT_NAME: Final = "<default>"
"""The node of those that have none of their own. Never a name: `<` would be encoded."""
_ATTEMPTS_MAX: Final = 10
_PAUSE_S: Final = (0.1, 0.15)
_CHANGES_KEPT: Final = 1000
"""Change nodes that stay: brokers have long seen the older ones."""
_CHANGES_REMOVED_AT_ONCE: Final = 10
"""Older change nodes that a change removes: more than it adds, and no more than its client can wait for."""


def sanitized(name: str) -> str:
    """The name as in a URL, as Java's encoder and Kafka write it: `*`, `~` and space are encoded too."""
    from urllib.parse import quote

    return quote(name, safe="").replace("~", "%7E")


def is_storable(name: str) -> bool:
    """Whether a node can have the name: ZooKeeper has none called `.` or `..`."""
    return name not in {"", ".", ".."}


async def change_config(
    tree: NodeTree, path: str, change: Callable[[dict[str, str]], None]
) -> None:
    """Lets `change` edit the map of a node, stores it if it is another one, and announces that.

    `change` is called again with what is there then, if others come in the way; what it raises ends it.
    Raises `KafkaError` if that goes on, `NodeDataError`, `CoordinationError`.
    """
    await ensure_paths(tree, [parent_of(path), CHANGES])
    for _ in range(_ATTEMPTS_MAX):
        node = (await tree.read_many([path]))[0]
        before = {} if node is None else decode_config(path, node.data)
        config = dict(before)
        change(config)
        if config == before:
            return
        data = encode_config(config)
        try:
            if node is None:
                await tree.create(path, data)
            else:
                await tree.write(path, data, node.version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            await asyncio.sleep(random.uniform(*_PAUSE_S))  # noqa: S311 - spreads retries
            continue
        await _announce(tree, path)
        return
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} changes all the time; try again")


async def _announce(tree: NodeTree, path: str) -> None:
    entity = path.removeprefix(f"{CONFIG}/")
    data = json.dumps({"version": 2, "entity_path": entity}, separators=(",", ":")).encode()
    await tree.create_sequential(f"{CHANGES}/config_change_", data)
    old = (await tree.children(CHANGES))[:-_CHANGES_KEPT]
    for name in old[:_CHANGES_REMOVED_AT_ONCE]:
        try:
            await tree.delete(f"{CHANGES}/{name}")
        except NoNodeError:
            continue


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Raises `NodeDataError`. Kafka writes no data where there were only nodes below."""
    if not data:
        return {}
    try:
        config = decode_node_json(data)["config"]
        return {str(name): str(value) for name, value in config.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NodeDataError(f"the node {path} holds what cannot be read") from error
