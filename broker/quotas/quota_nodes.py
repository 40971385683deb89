"""Quotas in the tree, where Kafka 3.9 keeps them, so that both read them and each sees the other's changes.

`/config/users/<user>`, `/config/users/<user>/clients/<client id>`, `/config/clients/<client id>` and
`/config/ips/<address>`. A user's node also holds credentials, which survive a change here. No cache: `quotas.py` has one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final

from echoless.broker.limited_log import LimitedLog
from echoless.broker.metadata.config_nodes import USERS, change_config, decode_config
from echoless.broker.metadata.node_data import NodeDataError
from echoless.broker.quotas.quota import OF_ADDRESSES, Entity, QuotaKey
from echoless.broker.tree.node_tree import NodeTree, NoNodeError

CLIENTS: Final = "/config/clients"
IPS: Final = "/config/ips"
_READ_AT_ONCE: Final = 200
limited: Final = LimitedLog(logging.getLogger(__name__))


def path_of(entity: Entity) -> str:
    """The node of its quotas."""
    if entity.ip is not None:
        return f"{IPS}/{entity.ip}"
    if entity.user is None:
        return f"{CLIENTS}/{entity.client_id}"
    if entity.client_id is None:
        return f"{USERS}/{entity.user}"
    return f"{USERS}/{entity.user}/clients/{entity.client_id}"


async def read_quotas(tree: NodeTree) -> dict[Entity, dict[QuotaKey, float]]:
    """All quotas; those that cannot be read are left out, with a warning."""
    users = await _children(tree, USERS)
    entities = [Entity(user=one) for one in users]
    entities += [Entity(client_id=one) for one in await _children(tree, CLIENTS)]
    entities += [Entity(ip=one) for one in await _children(tree, IPS)]
    parents = [f"{USERS}/{one}/clients" for one in users]
    for user, has_clients in zip(users, await _exist(tree, parents), strict=True):
        if has_clients:
            names = await _children(tree, f"{USERS}/{user}/clients")
            entities += [Entity(user, name) for name in names]
    found = {}
    for start in range(0, len(entities), _READ_AT_ONCE):
        some = entities[start : start + _READ_AT_ONCE]
        for entity, node in zip(
            some, await tree.read_many([path_of(one) for one in some]), strict=True
        ):
            quotas = {} if node is None else _decode(path_of(entity), node.data)
            if quotas:
                found[entity] = quotas
    return found


async def _children(tree: NodeTree, path: str) -> list[str]:
    try:
        return await tree.children(path)
    except NoNodeError:
        return []


async def _exist(tree: NodeTree, paths: list[str]) -> list[bool]:
    found: list[bool] = []
    for start in range(0, len(paths), _READ_AT_ONCE):
        nodes = await tree.read_many(paths[start : start + _READ_AT_ONCE])
        found += (node is not None for node in nodes)
    return found


def _decode(path: str, data: bytes) -> dict[QuotaKey, float]:
    try:
        config = decode_config(path, data)
    except NodeDataError as error:
        limited.log(logging.WARNING, path, "%s: its quotas do not hold", error)
        return {}
    found = {}
    for key in QuotaKey:
        if key not in config:
            continue
        try:
            value = float(config[key])
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value > 0:
            found[key] = value
        else:
            message = "%s: %s=%r is no number above 0, so this quota does not hold"
            limited.log(logging.WARNING, path, message, path, key, config[key])
    return found


async def alter_quotas(tree: NodeTree, entity: Entity, values: Mapping[str, str | None]) -> None:
    """Sets these quotas, removes those that are None, and announces it.

    Raises `KafkaError`, `NodeDataError`, `CoordinationError`.
    """
    await change_config(tree, path_of(entity), _changed(values))


def _changed(values: Mapping[str, str | None]) -> Callable[[dict[str, str]], None]:
    def change(config: dict[str, str]) -> None:
        for key, value in values.items():
            if value is None:
                config.pop(key, None)
            else:
                config[key] = value

    return change


def keys_of(entity: Entity) -> frozenset[QuotaKey]:
    """The quotas that the entity can have."""
    return OF_ADDRESSES if entity.ip is not None else frozenset(QuotaKey) - OF_ADDRESSES
