"""The cluster id on which the data directory and the coordinator have to agree before a broker starts."""

from __future__ import annotations

import uuid

from echoless.broker.config.loading import Config
from echoless.broker.environment import Environment
from echoless.broker.metadata.cluster_id import read_or_create_cluster_id
from echoless.broker.metadata.node_data import decode_uuid
from echoless.broker.tree.node_tree import CoordinationError, NodeTree
from echoless.storage.meta_properties import has_partitions


async def agreed_cluster_id(
    tree: NodeTree, config: Config, environment: Environment, own: str | None
) -> str:
    """The tree's cluster id; `own` is that of the data directory. Raises `CoordinationError`.

    The first broker of all makes it, or brings that of its directory. A tree that has none knows no
    topics either: with it, every partition in the directory would be removed as a stray.
    """

    def of_directory() -> uuid.UUID:
        if own is None:
            return environment.new_uuid()
        if has_partitions(environment.file_system, config.data_dir):
            raise CoordinationError(
                f"data_dir {config.data_dir} holds partitions of cluster {own}, but the "
                f"coordinator knows no cluster: correct its address, or bring its data back; "
                f"or give this broker an empty data_dir"
            )
        return decode_uuid(own)

    cluster_id = await read_or_create_cluster_id(tree, of_directory)
    if own is not None and cluster_id != own:
        raise CoordinationError(
            f"data_dir {config.data_dir} belongs to cluster {own}, "
            f"the coordinator to cluster {cluster_id}; give this broker an empty data_dir"
        )
    return cluster_id
