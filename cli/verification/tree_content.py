"""The coordinator's account of cluster, producer ids and topics, read without changing it.

The embedded coordinator's file is opened as a copy, so that nothing beside the original changes. In
ZooKeeper nothing is created either, and deletions that a crash cut short are left as they are.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from echoless.broker.config.loading import Config
from echoless.broker.metadata.broker_settings import BROKERS
from echoless.broker.metadata.config_nodes import decode_config
from echoless.broker.metadata.node_data import (
    CLUSTER_ID,
    TOPIC_DELETIONS,
    TOPICS,
    decode_cluster_id,
)
from echoless.broker.metadata.producer_id_block import PATH, last_id_of
from echoless.broker.metadata.topic import Topic
from echoless.broker.metadata.topic_nodes import read_topics
from echoless.broker.tree.embedded import EmbeddedNodeTree
from echoless.broker.tree.node_tree import CoordinationError, NodeTree, NoNodeError


class TreeContent(NamedTuple):
    """The content of the nodes."""

    cluster_id: str
    last_id: int
    """The end of the newest block of producer ids."""
    topics: Mapping[str, Topic]
    settings: Mapping[str, Mapping[str, str]]
    """Settings that were changed while brokers ran, by the name of their node."""


def read_embedded(path: str) -> TreeContent:
    """Reads the embedded coordinator's file. Raises `CoordinationError`, `KafkaError`."""
    return asyncio.run(_read_embedded(path))


def read_zookeeper(config: Config) -> TreeContent:
    """Reads the tree that `config` names. Raises `CoordinationError`, `KafkaError`."""
    return asyncio.run(_read_zookeeper(config))


async def _read_embedded(path: str) -> TreeContent:
    with tempfile.TemporaryDirectory(prefix="echoless-verify-") as scratch:
        for suffix in ("", "-wal"):
            if Path(path + suffix).exists():  # noqa: ASYNC240 - nothing else runs
                shutil.copyfile(path + suffix, f"{scratch}/copy{suffix}")
        try:
            tree = EmbeddedNodeTree.open(f"{scratch}/copy")
        except CoordinationError as error:
            raise CoordinationError(str(error).replace(f"{scratch}/copy", path)) from error
        return await _read_and_close(tree)


async def _read_zookeeper(config: Config) -> TreeContent:
    from echoless.broker.tree.zookeeper import ZooKeeperNodeTree

    return await _read_and_close(await ZooKeeperNodeTree.open(config, is_read_only=True))


async def _read_and_close(tree: NodeTree) -> TreeContent:
    try:
        return await _read(tree)
    finally:
        await tree.close()


async def _read(tree: NodeTree) -> TreeContent:
    cluster, block = await tree.read_many([CLUSTER_ID, PATH])
    if cluster is None:
        raise CoordinationError("holds no cluster")
    deleted = await _children(tree, TOPIC_DELETIONS)
    names = [name for name in await _children(tree, TOPICS) if name not in deleted]
    topics = await read_topics(tree, names)
    settings = await _settings(tree)
    return TreeContent(decode_cluster_id(cluster.data), last_id_of(block), topics, settings)


async def _settings(tree: NodeTree) -> dict[str, dict[str, str]]:
    names = await _children(tree, BROKERS)
    nodes = await tree.read_many([f"{BROKERS}/{name}" for name in names])
    found = zip(names, nodes, strict=True)
    return {name: decode_config(f"{BROKERS}/{name}", node.data) for name, node in found if node}


async def _children(tree: NodeTree, path: str) -> list[str]:
    try:
        return await tree.children(path)
    except NoNodeError:
        return []
