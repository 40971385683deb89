"""A client of one admin port."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from echoless.broker.admin.server import AdminServer
from tests.broker.admin.decider import Decider
from tests.broker.admin.fake_broker import FakeBroker


class AdminClient:
    """Asks over real HTTP."""

    def __init__(
        self, broker: FakeBroker, server: AdminServer, url: str, session: aiohttp.ClientSession
    ) -> None:
        self.broker = broker
        self.decider = Decider(broker)
        self._server = server
        self._is_stopped = False
        self.url = url
        self.session = session

    async def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        async with self.session.request(method, self.url + path) as response:
            return response.status, json.loads(await response.text())

    async def stop(self) -> None:
        """Stops the port, once."""
        if not self._is_stopped:
            self._is_stopped = True
            await self._server.stop()

    async def text(self, path: str) -> str:
        async with self.session.get(self.url + path) as response:
            return await response.text()
