"""Dispatch: from a frame on the native port to an answer.

The messages and their handlers are imported with the first message, in a thread: a broker whose native
port is never used does not pay for them, and the 25 ms that it takes do not hold the event loop.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from echoless.broker.network.answers import Buffers
from echoless.broker.network.order import LanePlace
from echoless.broker.network.reading import Dispatched
from echoless.broker.network.request import Peer
from echoless.broker.network.turns import in_thread
from echoless.protocol.framing import Frame

if TYPE_CHECKING:
    from echoless.broker.native.exchange import Exchange
    from echoless.broker.services import Services


class NativeDispatcher:
    """Answers the frames of all connections on the native port."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._exchange: Exchange | None = None

    def __call__(self, frame: Frame, peer: Peer) -> Dispatched:
        """Raises `CloseConnectionError` if the connection has to be closed."""
        imports = peer.order.imports
        if self._exchange is None or imports.places:
            return self._when_imported(frame, peer, imports.enter())
        return self._exchange.answer(frame, peer)

    async def _when_imported(self, frame: Frame, peer: Peer, place: LanePlace) -> Buffers | None:
        with place:
            await place.come()
            exchange = self._exchange or await self._imported()
            dispatched = exchange.answer(frame, peer)
        return await dispatched if isinstance(dispatched, Awaitable) else dispatched

    async def _imported(self) -> Exchange:
        module = await in_thread(
            partial(importlib.import_module, "echoless.broker.native.exchange")
        )
        if self._exchange is None:
            self._exchange = module.Exchange(self._services)
        return self._exchange
