"""Users in the tree: `/config/users/<user>`, as Kafka 3.9 stores their SCRAM credentials, so that both read them.

A user's node also holds quotas, which survive a change here (`broker/metadata/config_nodes.py`). No cache:
`credentials.py` has one. Called by it, by the handlers and by `echoless users`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import unquote

from echoless.broker.metadata.config_nodes import (
    DEFAULT_NAME,
    USERS,
    change_config,
    decode_config,
    sanitized,
)
from echoless.broker.metadata.node_data import NodeDataError
from echoless.broker.tree.node_tree import NodeTree, NoNodeError
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.protocol.sasl.scram import ScramCredential

SCRAM_MECHANISMS: Final = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
READ_AT_ONCE: Final = 200
"""Users that are read and decoded before others have a turn: about three milliseconds."""
_PARTS: Final = frozenset({"salt", "stored_key", "server_key", "iterations"})
_ITERATIONS_BOUND: Final = 1 << 31


def user_path(user: str) -> str:
    """The path of a user's node."""
    return f"{USERS}/{sanitized(user)}"


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
        names = [name for name in await tree.children(USERS) if name != DEFAULT_NAME]
    except NoNodeError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), READ_AT_ONCE):
        found |= await _read_some(tree, names[start : start + READ_AT_ONCE])
        await asyncio.sleep(0)  # the embedded tree may answer without a pause
    return found


async def _read_some(tree: NodeTree, names: list[str]) -> dict[str, dict[str, str]]:
    found = {}
    nodes = await tree.read_many([f"{USERS}/{name}" for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            try:
                found[unquote(name)] = decode_config(name, node.data)
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

    def change(config: dict[str, str]) -> None:
        for mechanism in deletions:
            if config.pop(mechanism, None) is None:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
        config |= {name: encode_credential(one) for name, one in upserts.items()}

    await change_config(tree, user_path(user), change)
