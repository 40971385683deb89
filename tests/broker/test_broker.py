"""The broker as a whole: what it refuses to start with."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.broker import Broker
from broker.config import Address, Config
from broker.coordination.node_tree import CoordinationError
from broker.environment import this_machine
from storage.file_system import OsFileSystem


async def test_a_coordinator_that_is_not_served_is_refused(tmp_path: Path) -> None:
    """Who asks for ZooKeeper is told, instead of getting a broker that stands alone."""
    data_dir = str(tmp_path / "data")
    config = Config(data_dir=data_dir, coordinator="zookeeper://127.0.0.1:2181/echoless")
    with pytest.raises(CoordinationError, match="zookeeper://127"):
        await Broker(config, this_machine()).start(Address("127.0.0.1", 9092))
    assert not OsFileSystem().exists(data_dir)
