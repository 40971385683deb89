"""A broker's environment: disk, coordinator, other brokers, clock and randomness.

`this_machine` is the real one; the simulator passes its own, and so runs whole clusters in one
process. Expensive modules are imported on first use.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.descriptors import SPARES, descriptor_shares
from echoless.storage.disk_work import RunAll, in_threads, one_by_one
from echoless.storage.file_system import FileSystem
from echoless.storage.os_file_system import OsFileSystem

if TYPE_CHECKING:
    from echoless.broker.config.loading import Config
    from echoless.broker.replication.peers import Peers
    from echoless.broker.tree.node_tree import NodeTree

COORDINATION_FILE: Final = "coordination.sqlite"
"""The file in the data directory in which the embedded coordinator keeps its nodes."""


class Environment(NamedTuple):
    """The environment of one broker."""

    file_system: FileSystem
    open_tree: Callable[[Config], Awaitable[NodeTree]]
    """Raises `CoordinationError`."""
    open_peers: Callable[[], Peers]
    now_ms: Callable[[], int]
    """The wall-clock time, in ms since 1970; it may be set at any time (`broker/clock.py`)."""
    rng: Random
    new_uuid: Callable[[], uuid.UUID]
    monotonic_ms: Callable[[], int]
    """Milliseconds since some moment; cannot be set, and stands still while the machine sleeps."""
    has_processes: bool = False
    """Whether other processes of the machine see the same files."""
    run_all: RunAll = one_by_one
    """Runs many pieces of work that wait for the disk."""


def this_machine() -> Environment:
    """The real disk, coordinator, network and clock."""
    return Environment(
        file_system=_file_system(),
        open_tree=_open_tree,
        open_peers=_open_peers,
        now_ms=wall_clock_ms,
        rng=Random(),  # noqa: S311 - spreads replicas, keeps no secret
        new_uuid=uuid.uuid4,
        monotonic_ms=monotonic_ms,
        has_processes=True,
        run_all=in_threads,
    )


@cache
def _file_system() -> OsFileSystem:
    """The file system of this process: a limit of descriptors, and so the reserve, is the process's."""
    return OsFileSystem(spare_descriptors=SPARES, files_max=descriptor_shares().files)


def wall_clock_ms() -> int:
    """The wall-clock time in ms since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds of the clock that cannot be set (`CLOCK_MONOTONIC`)."""
    return time.monotonic_ns() // 1_000_000


async def _open_tree(config: Config) -> NodeTree:
    if config.zookeeper_hosts is None:
        from echoless.broker.tree.embedded import EmbeddedNodeTree

        return EmbeddedNodeTree.open(f"{config.data_dir}/{COORDINATION_FILE}")
    from echoless.broker.tree.zookeeper import ZooKeeperNodeTree

    return await ZooKeeperNodeTree.open(config)


def _open_peers() -> Peers:
    from echoless.broker.replication.peers import TcpPeers

    return TcpPeers()
