"""Users in the tree: `/config/users/<user>`, as Kafka 3.9 stores their SCRAM credentials, so that both read them.

A user's node also holds quotas, which survive a change here. After each change a node in `/config/changes` tells
every broker, Kafka's too. No cache: `credentials.py` has one. Called by it, by the handlers and by
`echoless users`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import random
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from broker.metadata.node_data import NodeDataError
from broker.tree.node_json import decode_node_json
from broker.tree.node_tree import (
    BadVersionError,
    NodeExistsError,
    NodeTree,
    NoNodeError,
    ensure_paths,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.sasl.mechanism import Mechanism
from protocol.sasl.scram import ScramCredential

USERS: Final = "/config/users"
CHANGES: Final = "/config/changes"
SCRAM_MECHANISMS: Final = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
_DEFAULT_USER: Final = "<default>"
"""The node of quotas for users that have none of their own; not a user."""
_PARTS: Final = frozenset({"salt", "stored_key", "server_key", "iterations"})
_ITERATIONS_BOUND: Final = 1 << 31
_ATTEMPTS_MAX: Final = 10
_PAUSE_S: Final = (0.1, 0.15)
_CHANGES_KEPT: Final = 1000
"""How many change nodes stay: brokers have long seen those before."""


class UserNode(NamedTuple):
    """A user as stored."""

    config: dict[str, str]
    version: int


def user_path(user: str) -> str:
    """The path of a user's node: the name as in a URL, `*` and space too."""
    return f"{USERS}/{quote(user, safe='')}"


def is_storable(user: str) -> bool:
    """Whether a node can have the name: ZooKeeper has none called `.` or `..`."""
    return user not in {"", ".", ".."}


def encode_credential(credential: ScramCredential) -> str:
    """The text that Kafka stores."""
    salt, stored, server = (base64.b64encode(part).decode() for part in credential[:3])
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def decode_credential(text: str) -> ScramCredential:
    """Takes the four parts in any order. Raises `ValueError`."""
    parts = dict(part.split("=", 1) for part in text.split(","))
    if parts.keys() != _PARTS:
        raise ValueError("a credential has salt, stored_key, server_key and iterations")
    try:
        salt, stored, server = (
            base64.b64decode(parts[name], validate=True)
            for name in ("salt", "stored_key", "server_key")
        )
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    iterations = int(parts["iterations"])
    if not -_ITERATIONS_BOUND <= iterations < _ITERATIONS_BOUND:
        raise ValueError(f"{iterations} iterations have no place in Kafka's messages")
    return ScramCredential(salt, stored, server, iterations)


def credentials_in(config: Mapping[str, str]) -> dict[Mechanism, ScramCredential]:
    """The credentials of a user; those that cannot be read are left out: they admit no one."""
    found = {}
    for mechanism in SCRAM_MECHANISMS:
        if mechanism in config:
            try:
                found[mechanism] = decode_credential(config[mechanism])
            except ValueError:
                continue
    return found


async def read_users(tree: NodeTree) -> dict[str, dict[str, str]]:
    """The configuration of every user that has a node; nodes that cannot be read are left out."""
    try:
        names = [name for name in await tree.children(USERS) if name != _DEFAULT_USER]
    except NoNodeError:
        return {}
    nodes = await tree.read_many([f"{USERS}/{name}" for name in names])
    found = {}
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            try:
                found[unquote(name)] = _decode(name, node.data)
            except NodeDataError:
                continue
    return found


async def alter_user(
    tree: NodeTree,
    user: str,
    upserts: Mapping[Mechanism, ScramCredential],
    deletions: Collection[Mechanism] = (),
) -> None:
    """Makes all changes or none, and announces them.

    Raises `KafkaError` RESOURCE_NOT_FOUND if a credential to be deleted is not there.
    """
    await ensure_paths(tree, [USERS, CHANGES])
    path = user_path(user)
    for _ in range(_ATTEMPTS_MAX):
        node = (await tree.read_many([path]))[0]
        config = {} if node is None else _decode(path, node.data)
        for mechanism in deletions:
            if config.pop(mechanism, None) is None:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
        config |= {name: encode_credential(one) for name, one in upserts.items()}
        data = json.dumps({"version": 1, "config": config}, separators=(",", ":")).encode()
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
    entity = path.removeprefix("/config/")
    data = json.dumps({"version": 2, "entity_path": entity}, separators=(",", ":")).encode()
    await tree.create_sequential(f"{CHANGES}/config_change_", data)
    for name in (await tree.children(CHANGES))[:-_CHANGES_KEPT]:
        try:
            await tree.delete(f"{CHANGES}/{name}")
        except NoNodeError:
            continue


def _decode(path: str, data: bytes) -> dict[str, str]:
    """Raises `NodeDataError`. Kafka writes no data where there were only nodes below."""
    if not data:
        return {}
    try:
        config = decode_node_json(data)["config"]
        return {str(name): str(value) for name, value in config.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NodeDataError(f"the node {path} holds what cannot be read") from error
