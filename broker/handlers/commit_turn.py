"""The order of one connection's group requests while a commit of many partitions takes turns.

Requests of a connection are processed as they arrive. A commit that takes several turns of the event loop reaches the
coordinator later: overtaken by another commit it would take back what that stored, by its member's leaving or joining
anew it would be refused, and by a look at the offsets it would not be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from echoless.broker.network.request import Answer, NeedsNoFrame, Outcome, Peer, Request

if TYPE_CHECKING:
    from echoless.broker.services import Services

_Handle = Callable[[Request, "Services"], Outcome]


class CommitTurn:
    """The place of a request among the commits of its connection; later ones wait for its end."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._earlier, self._is_over = peer.committing, asyncio.Event()
        peer.committing = self._is_over

    async def come(self) -> None:
        """Returns when those before it have reached their coordinators."""
        if self._earlier is not None:
            await self._earlier.wait()

    def end(self) -> None:
        self._is_over.set()
        if self._peer.committing is self._is_over:
            self._peer.committing = None


def after_commits(handle: _Handle) -> _Handle:
    """The same handler, called once the commits before the request have reached their coordinators."""

    def handle_in_order(request: Request, services: Services) -> Outcome:
        if request.peer.committing is None:
            return handle(request, services)
        return NeedsNoFrame(_handle_later(CommitTurn(request.peer), handle, request, services))

    return handle_in_order


async def _handle_later(
    turn: CommitTurn, handle: _Handle, request: Request, services: Services
) -> Answer:
    try:
        await turn.come()
        outcome = handle(request, services)
    finally:
        turn.end()
    return await outcome if isinstance(outcome, Awaitable) else outcome
