"""The admin port, dormant until the first connection.

aiohttp and prometheus-client take 250 ms and some 25 MB to import, and most brokers are never
queried. So the bound socket is only watched; the first connection, which waits in the kernel's queue
meanwhile, triggers the import in a thread and then starts the application.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from echoless.broker.threads import BESIDE_THE_LOOP

if TYPE_CHECKING:
    from echoless.broker.admin.application import HttpServer
    from echoless.broker.admin.view import BrokerView
    from echoless.broker.network.tls_acceptor import TlsSettings

logger = logging.getLogger(__name__)

RETRY_S: Final = 5.0
"""The pause after a failed attempt to start."""


class AdminServer:
    """HTTP on one listening, non-blocking socket; owns it from then on."""

    def __init__(
        self, listener: socket.socket, broker: BrokerView, tls: TlsSettings | None = None
    ) -> None:
        self._listener = listener
        self._broker = broker
        self._tls = tls
        self._http: HttpServer | None = None
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watches the socket; returns at once. Needs a running event loop."""
        asyncio.get_running_loop().add_reader(self._listener, self._wake)

    async def stop(self) -> None:
        """Closes the socket and every connection."""
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._http is not None:
            await self._http.stop()
        self._listener.close()

    def _wake(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._starting = loop.create_task(self._serve())

    async def _serve(self) -> None:
        """Starts answering, and retries if that fails; clients that connect wait meanwhile."""
        while self._http is None:
            try:
                self._http = await self._application()
            except Exception:
                logger.exception("the admin port cannot start; it tries again in %g s", RETRY_S)
                await asyncio.sleep(RETRY_S)
        logger.debug("the admin port answers")

    async def _application(self) -> HttpServer:
        load = partial(importlib.import_module, "echoless.broker.admin.application")
        application = await BESIDE_THE_LOOP.run(load)
        server: HttpServer = await application.serve(self._listener, self._broker, self._tls)
        return server
