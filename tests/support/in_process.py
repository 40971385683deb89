"""A broker inside the test's own process: real logs, real sockets on loopback, no subprocess.

async with in_process(tmp_path, log_flush=LogFlush.COMMIT) as running:
    connection = await RawConnection.open(running.kafka_address)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.broker import Broker
from broker.config import Address, Config
from broker.dispatch import KafkaDispatcher
from broker.environment import this_machine
from broker.memory_budget import MemoryBudget
from broker.native.dispatch import NativeDispatcher
from broker.server import Server, bind, bound_address

_ANY_PORT = Address("127.0.0.1", 0)


@dataclass(slots=True, frozen=True)
class Running:
    """A broker that answers on its ports."""

    broker: Broker
    kafka_address: str
    native_address: str


@asynccontextmanager
async def in_process(directory: Path, **settings: Any) -> AsyncIterator[Running]:
    """Starts a broker on free ports, and stops it as SIGTERM would. `settings`: names of `Config`."""
    config = Config(data_dir=str(directory / "data"), **settings)
    broker = Broker(config, this_machine())
    sockets = [bind("listen", _ANY_PORT), bind("native_listen", _ANY_PORT)]
    kafka_address, native_address = (bound_address(listener) for listener in sockets)
    await broker.start(kafka_address)
    dispatchers = (KafkaDispatcher(broker), NativeDispatcher(broker))
    budget = MemoryBudget(config.request_size_max)
    servers = [
        Server(listener, dispatcher, config=config, budget=budget, metrics=broker.metrics)
        for listener, dispatcher in zip(sockets, dispatchers, strict=True)
    ]
    for server in servers:
        await server.start()
    try:
        yield Running(broker, str(kafka_address), str(native_address))
    finally:
        for server in servers:
            await server.stop()
        await broker.stop()
