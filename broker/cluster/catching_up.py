"""`echoless coordinator catch-up`: brings an old copy of the coordinator's data up to a data directory.

Opens both as a broker does, and serves nothing. Called by the command; the rules are in
`broker/metadata/old_copy.py`.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from echoless.broker.config.loading import Config
from echoless.broker.config.topic import to_log_config
from echoless.broker.environment import this_machine
from echoless.broker.metadata.broker_settings import BrokerSettings
from echoless.broker.metadata.cluster_id import read_or_create_cluster_id
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.metadata.tree_catch_up import catch_up
from echoless.broker.tree.node_tree import CoordinationError, NodeTree
from echoless.storage.log_directory import LogDirectory
from echoless.storage.meta_properties import read_broker_id

if TYPE_CHECKING:
    from echoless.broker.environment import Environment
    from echoless.storage.log_config import LogConfig


async def catch_up_coordinator(config: Config, environment: Environment | None = None) -> list[str]:
    """Catches up and returns a line for each change. Raises `StorageError`, `CoordinationError`."""
    world, data_dir = environment or this_machine(), config.data_dir
    broker_id = read_broker_id(world.file_system, data_dir)
    config = replace(config, broker_id=broker_id)
    logs = LogDirectory.claim(data_dir, broker_id=broker_id, fs=world.file_system)
    try:
        tree = await world.open_tree(config)
    except BaseException:
        logs.release()
        raise
    try:
        return await _catch_up(world, config, tree, logs)
    finally:
        await tree.close()


async def _catch_up(
    world: Environment, config: Config, tree: NodeTree, logs: LogDirectory
) -> list[str]:
    try:
        await _check_cluster(tree, logs)
        registry = TopicRegistry(tree, rng=world.rng, new_uuid=world.new_uuid)
        await registry.load()
        await BrokerSettings(config).start(tree, is_shared=False)  # applies them to `config`
    except BaseException:
        logs.release()
        raise

    def config_for(topic: str) -> LogConfig:
        known = registry.topics.get(topic)
        return to_log_config(config, topic, {} if known is None else known.config)

    last = logs.last_clock()
    now_ms = world.now_ms() if last is None else last.steady_ms
    logs.open_logs(now_ms, config_for, is_committed=True)  # it cuts no more than a broker would
    try:
        return await catch_up(tree, registry, logs, config.broker_id)
    finally:
        logs.close(logs.high_watermarks)


async def _check_cluster(tree: NodeTree, logs: LogDirectory) -> None:
    def unknown() -> uuid.UUID:
        raise CoordinationError("the coordinator knows no cluster: bring its data back")

    cluster_id = await read_or_create_cluster_id(tree, unknown)
    if cluster_id != logs.cluster_id:
        raise CoordinationError(
            f"{logs.path} belongs to cluster {logs.cluster_id}, the coordinator to {cluster_id}"
        )
