"""Dispatch: from a frame on the native port to an answer.

The messages and their handlers are imported with the first message: a broker whose native port is
never used does not pay for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.connection import Dispatched
from broker.network.request import Peer
from protocol.framing import Frame

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.native.exchange import Exchange


class NativeDispatcher:
    """Answers the frames of all connections on the native port."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._exchange: Exchange | None = None

    def __call__(self, frame: Frame, peer: Peer) -> Dispatched:
        """Raises `CloseConnectionError` if the connection has to be closed."""
        if self._exchange is None:
            from broker.native.exchange import Exchange

            self._exchange = Exchange(self._broker)
        return self._exchange.answer(frame, peer)
