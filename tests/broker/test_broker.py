"""The broker as a whole: what it refuses to start with."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from echoless.broker.assembly import new_broker
from echoless.broker.config.loading import Address, Config
from echoless.broker.environment import this_machine
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.listeners import bind_listeners
from echoless.broker.tree.node_tree import CoordinationError
from echoless.storage.os_file_system import OsFileSystem
from tests.support.in_process import in_process

ANY_PORT = Address("127.0.0.1", 0)


async def test_a_coordinator_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """A broker configured for ZooKeeper never runs stand-alone, and nothing is claimed on disk."""
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
            await new_broker(config, this_machine()).start({})
    assert not OsFileSystem().exists(data_dir)


async def test_until_it_can_answer_a_broker_refuses_connections(tmp_path: Path) -> None:
    """A client that is refused tries again; one that is taken and not answered waits."""
    config = Config(data_dir=str(tmp_path), listen=(ANY_PORT,), native_listen=ANY_PORT)
    for listener in bind_listeners(config):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(listener.address.host, listener.address.port)
        with listener.socket:
            listener.socket.listen()
            _, writer = await asyncio.open_connection(listener.address.host, listener.address.port)
            writer.close()


async def test_a_start_says_how_far_it_is(tmp_path: Path) -> None:
    """A log at a time, with the loop free in between."""
    async with in_process(tmp_path) as running:
        assert running.broker.starting is None
        await running.broker.services.topics.create(NewTopic(name="t", partitions=3))
    heard: list[str | None] = []
    broker = new_broker(Config(data_dir=str(tmp_path / "data")), this_machine())

    async def listen() -> None:
        while broker.starting is not None:
            heard.append(broker.starting)
            await asyncio.sleep(0)

    listening = asyncio.create_task(listen())
    await broker.start({})
    await listening
    assert {f"{opened} of 3 logs are open" for opened in range(3)} <= set(heard)
    broker.begin_stop()
    await broker.close_logs()
    await broker.end_session()


async def test_a_stopped_broker_leaves_no_descriptors_open(tmp_path: Path) -> None:
    """Hundreds of brokers in one process have to: `select` serves no descriptor above 1024."""
    counts = []
    for run in range(3):
        async with in_process(tmp_path / str(run)) as running:
            await running.broker.services.topics.create(NewTopic(name="t", partitions=3))
        counts.append(_open_descriptors())
    assert counts[1] == counts[2]


def _open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
