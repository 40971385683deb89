"""The broker as a whole: what it refuses to start with."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from broker.broker import Broker
from broker.config import Config
from broker.coordination.node_tree import CoordinationError
from broker.environment import this_machine
from storage.file_system import OsFileSystem


async def test_a_coordinator_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """Who asks for ZooKeeper gets no broker that stands alone, and nothing is claimed on disk."""
    data_dir = str(tmp_path / "data")
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{nobody_listens.getsockname()[1]}"
        config = Config(
            data_dir=data_dir,
            coordinator=f"zookeeper://{hosts}/echoless",
            zookeeper_connection_timeout_ms=100,
        )
        with pytest.raises(CoordinationError, match=hosts):
            await Broker(config, this_machine()).start({})
    assert not OsFileSystem().exists(data_dir)
