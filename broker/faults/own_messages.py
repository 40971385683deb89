"""The messages about transactions that a broker would send to itself, so that rules meet them as they meet those of others.

Without rules a coordinator and the leaders on its own broker call each other. With rules for requests what they ask goes
through the native port's code: read, matched and answered as a message of another broker, but without a connection and its
order. So a marker can be held back on a broker that stands alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.faults.coordinated import CoordinatedStates
from echoless.broker.faults.native_requests import NativeRequests
from echoless.broker.faults.port import FaultyPort
from echoless.broker.faults.request_actions import RequestActions
from echoless.broker.faults.requests import finished
from echoless.broker.native.exchange import Exchange
from echoless.broker.network.pieces import Pieces
from echoless.broker.network.request import CloseConnectionError, Peer
from echoless.broker.replication.peer_connection import PEER_CLIENT_ID
from echoless.broker.replication.peers import PeerError
from echoless.broker.transactions import coordinator_door, marker_door
from echoless.protocol.framing import LENGTH_SIZE
from echoless.protocol.native.codec import decode_message, encode_message
from echoless.protocol.native.transactions import (
    AddOrVerify,
    MarkerCodes,
    TransactionAnswered,
    TransactionAsk,
    TransactionMarker,
    WriteMarkers,
    read_add_or_verify_answer,
    read_write_markers_answer,
)

if TYPE_CHECKING:
    from echoless.broker.faults.hits import Hits
    from echoless.broker.faults.rule import ActiveRule
    from echoless.broker.network.answers import Buffers
    from echoless.broker.network.connection import Connection
    from echoless.broker.network.reading import Dispatch
    from echoless.broker.services import Services
    from echoless.protocol.framing import Frame

_NO_CONNECTION: Final = 0


class OwnMessages:
    """The native port without a socket. Belongs to the event loop."""

    def __init__(self, services: Services, hits: Hits, crash: Callable[[ActiveRule], None]) -> None:
        trusted = replace(services, access=None)  # a broker needs no rights for its own state
        self.dispatch: Dispatch = Exchange(trusted).answer
        self.route: Callable[[Connection], Dispatch] | None = None
        self.connections: Iterable[Connection] = ()
        self._broker_id = services.config.broker_id
        self._name = f"broker {self._broker_id}"
        requests = NativeRequests(trusted, self.dispatch)
        coordinated = CoordinatedStates(services)
        actions = RequestActions(self.dispatch, requests, crash, coordinated)
        self.port = FaultyPort(self, requests, hits, actions, coordinated)

    async def ask(self, ask: TransactionAsk) -> TransactionAnswered:
        """Asks the coordinator on this broker for a leader on it. Raises `PeerError`, `KafkaError`."""
        message = AddOrVerify(self._broker_id, [ask]).to_message()
        answer = await self._call(message, coordinator_door.ANSWERED_S)
        (answered,) = read_add_or_verify_answer(answer, [ask])
        return answered

    async def write(self, markers: Sequence[TransactionMarker]) -> MarkerCodes:
        """Has the leaders on this broker append markers. Raises `PeerError`, `KafkaError`."""
        message = WriteMarkers(self._broker_id, markers).to_message()
        answer = await self._call(message, marker_door.ANSWERED_S)
        return read_write_markers_answer(answer, markers)

    async def _call(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer of this broker. Raises `PeerError` if a rule keeps it back."""
        frame = encode_message({**message, "correlation_id": 0})
        peer = Peer(_NO_CONNECTION, self._name, PEER_CLIENT_ID)
        answering = asyncio.ensure_future(self._answer(frame, peer))
        self.port.keep(answering)
        await asyncio.wait((answering,), timeout=timeout_s)  # what is held back goes on without us
        is_there = answering.done() and not answering.cancelled()
        buffers = answering.result() if is_there else None
        if buffers is None or (isinstance(buffers, Pieces) and buffers.closes):
            raise PeerError(f"{self._name}: no answer to its own {message['type']}")
        return decode_message(b"".join(buffers)[LENGTH_SIZE:])

    async def _answer(self, frame: Frame, peer: Peer) -> Buffers | None:
        plan = self.port.plan(self.port.read(frame, peer), frame, peer)
        try:
            if plan.wait is not None:
                await plan.wait()
            return await finished(plan.process())
        except CloseConnectionError:
            return None
