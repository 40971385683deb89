"""The dispatcher of one connection while there are rules for requests.

It wraps the port's own dispatcher, and is removed with the last rule. A request that a rule delays or
freezes holds up those after it: a connection is processed in order. It is processed when its time
comes even if the client has gone by then, like a late packet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.faults.requests import finished
from broker.network.connection import Buffers, Connection, Dispatched
from broker.network.request import Peer
from protocol.framing import Frame

if TYPE_CHECKING:
    from broker.faults.port import FaultyPort


class Plan(NamedTuple):
    """The plan for one request."""

    process: Callable[[], Dispatched]
    wait: Callable[[], Awaitable[object]] | None = None
    """What the request has to wait for."""


class FaultyDispatcher:
    """Asks the rules about every request of one connection."""

    def __init__(self, connection: Connection, port: FaultyPort) -> None:
        self._connection = connection
        self._port = port
        self._last: asyncio.Event | None = None
        """Set when the last waiting request has started processing."""

    @property
    def is_waiting(self) -> bool:
        """Whether requests wait for their turn, so that no other dispatcher may overtake them."""
        return self._last is not None

    def __call__(self, frame: Frame, peer: Peer) -> Dispatched:
        """Raises as the port's own dispatcher does."""
        if self._last is not None:
            return self._late(lambda: self._port.plan(frame, peer))
        plan = self._port.plan(frame, peer)
        return plan.process() if plan.wait is None else self._late(lambda: plan)

    def _late(self, make_plan: Callable[[], Plan]) -> Awaitable[Buffers | None]:
        before, begun = self._last, asyncio.Event()
        self._last = begun
        task = asyncio.ensure_future(self._in_turn(make_plan, before, begun))
        self._port.keep(task)
        return asyncio.shield(task)

    async def _in_turn(
        self, make_plan: Callable[[], Plan], before: asyncio.Event | None, begun: asyncio.Event
    ) -> Buffers | None:
        try:
            if before is not None:
                await before.wait()
            plan = make_plan()
            if plan.wait is not None:
                await plan.wait()
            dispatched = plan.process()
        finally:
            begun.set()
            if self._last is begun:
                self._last = None
                self._port.settle(self._connection)
        return await finished(dispatched)
