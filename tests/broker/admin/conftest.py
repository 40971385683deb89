"""The admin port of a fake broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from echoless.broker.admin.server import AdminServer
from echoless.broker.admin.view import BrokerView
from echoless.broker.config.values import Address
from echoless.broker.network.server import bind, bound_address
from tests.broker.admin.admin_client import AdminClient
from tests.broker.admin.fake_broker import FakeBroker
from tests.support.in_process import Running


@pytest.fixture
async def admin_address(running: Running) -> AsyncIterator[str]:
    """`host:port` of the admin port of the broker in this process."""
    listener = bind("admin_listen", Address("127.0.0.1", 0))
    server = AdminServer(listener, running.broker)
    server.start()
    yield str(bound_address(listener))
    await server.stop()


@pytest.fixture
async def admin() -> AsyncIterator[AdminClient]:
    """A client of it; `admin.broker` is the broker behind it."""
    listener = bind("admin_listen", Address("127.0.0.1", 0))
    address = bound_address(listener)
    broker = FakeBroker()
    view: BrokerView = broker
    server = AdminServer(listener, view)
    server.start()
    async with aiohttp.ClientSession() as session:
        client = AdminClient(broker, server, f"http://{address}", session)
        yield client
        await client.stop()
