"""A broker inside the test's own process: real logs, real sockets on loopback, no subprocess.

async with in_process(tmp_path, log_flush=LogFlush.COMMIT) as running:
    connection = await RawConnection.open(running.kafka_address)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from echoless.broker.assembly import new_broker, new_servers
from echoless.broker.broker import Broker
from echoless.broker.config.loading import Address, Config
from echoless.broker.environment import Environment, this_machine
from echoless.broker.network.listeners import bind_listeners
from tests.support.sync_guard import SyncGuard

_ANY_PORT = Address("127.0.0.1", 0)


@dataclass(slots=True, frozen=True)
class Running:
    """A broker that answers on its ports."""

    broker: Broker
    kafka_address: str
    """Address of the listener PLAINTEXT."""
    native_address: str
    external_address: str | None = None
    """Address of the listener EXTERNAL, if `listen` has two addresses."""


@asynccontextmanager
async def in_process(
    directory: Path,
    *,
    environment: Environment | None = None,
    access: Any = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    """Starts a broker on free ports, and stops it as SIGTERM would. `settings`: names of `Config`.

    `access`: takes the place of the authorizer.

    Fails if it syncs on the event loop while it serves.
    """
    any_port = {"listen": (_ANY_PORT,), "native_listen": _ANY_PORT}
    config = Config(data_dir=str(directory / "data"), **{**any_port, **settings})
    environment = environment or this_machine()
    guard = SyncGuard(environment.file_system)
    broker = new_broker(config, environment._replace(file_system=guard))
    listeners = bind_listeners(config)
    try:
        await broker.start({one.name: one.advertised for one in listeners})
    except BaseException:
        for one in listeners:
            one.socket.close()
        await broker.stop()  # gives the lock back at once, not when garbage is collected
        raise
    if access is not None:
        broker.services = replace(broker.services, access=access)
    servers = new_servers(broker, listeners)
    for server in servers:
        await server.start()
    guard.watch()
    try:
        addresses = [str(one.address) for one in listeners]
        yield Running(broker, addresses[0], addresses[-1], *addresses[1:-1])
    finally:
        guard.unwatch()
        for server in servers:
            await server.stop()
        await broker.stop()
    guard.check()


async def flushed(broker: Broker) -> None:
    """Returns when the broker's flusher has flushed all that is dirty; nothing may append meanwhile.

    It is not asked to flush here: one log must not be flushed twice at once, and housekeeping may have woken it.
    """
    flusher = broker._flusher
    while flusher._dirty or flusher._in_flush:
        flusher._wake.set()
        await asyncio.sleep(0.001)
