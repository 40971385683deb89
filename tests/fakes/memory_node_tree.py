"""The fake tree without a network: one `MemoryTree`, and a `MemoryNodeTree` per client session.

Faults are requested by name and happen once: `lose_next_reply` (the change is applied, or not, and
the client cannot tell), `before_next_change` (a rival's turn between a client's read and its
write), `suspend` / `resume` / `expire_session` / `reconnect`.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from echoless.broker.tree.node_tree import ConnectionLostError, SessionState
from echoless.broker.tree.nodes import Nodes
from tests.fakes.fake_node_tree import FakeNodeTree, FakeTreeServer, Kind, Request

Rival = Callable[[], Awaitable[object]]


async def turns(count: int = 200) -> None:
    """Gives all other tasks this many turns, so that every consequence of earlier events is done."""
    for _ in range(count):
        await asyncio.sleep(0)


class MemoryTree(FakeTreeServer):
    """The server, and the connected clients."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[MemoryNodeTree] = []
        self._session_ids = itertools.count(1)

    def connect(self) -> MemoryNodeTree:
        """A new client with its own session."""
        client = MemoryNodeTree(self)
        self.clients.append(client)
        return client

    def next_session_id(self) -> int:
        return next(self._session_ids)

    def _tell(self, nodes: Nodes, path: str, *, came_or_went: bool) -> None:
        del nodes  # all clients see the same
        for client in self.clients:
            client.hear(path, came_or_went=came_or_went)


class MemoryNodeTree(FakeNodeTree):
    """One client. Every call gives the other tasks a turn first, as a network would."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__()
        self.session_timeout_s = math.inf
        """Set by tests; nothing here ends a session by itself."""
        self._tree = tree
        self._session_state = SessionState.CONNECTED
        self._session_id = tree.next_session_id()
        self.session_asked_at = _now()
        self._is_cut_off = False
        self._lost_replies: deque[bool] = deque()
        self._rivals: deque[Rival] = deque()

    # Faults

    def lose_next_reply(self, *, applied: bool) -> None:
        """Makes the next change (if set again: the one after it) end in `ConnectionLostError`."""
        self._lost_replies.append(applied)

    def before_next_change(self, rival: Rival) -> None:
        """Runs `rival` when the next change has been sent and before it is applied."""
        self._rivals.append(rival)

    def suspend(self) -> None:
        """Loses the connection; the session stays alive."""
        self._become(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Reconnects the same session."""
        self._become(SessionState.CONNECTED)
        self._watches.anything_may_have_changed()

    def expire_session(self) -> None:
        """Ends the session on both sides."""
        self._become(SessionState.LOST)
        self._tree.end_session(self._session_id)

    def cut_off(self) -> None:
        """Ends the session as SIGKILL does: the client changes nothing any more, and hears nothing of it."""
        self._is_cut_off = True
        self._tree.end_session(self._session_id)

    def reconnect(self) -> None:
        """Starts a new session after the old one was lost."""
        self._session_id = self._tree.next_session_id()
        self.session_asked_at = _now()
        self.resume()

    def hear(self, path: str, *, came_or_went: bool) -> None:
        """Delivers the server's notification that a node has changed."""
        if self._session_state is SessionState.CONNECTED and not self._is_cut_off:
            self._watches.node_changed(path, came_or_went=came_or_went)

    async def close(self) -> None:
        if self._session_state is not SessionState.LOST:
            self.expire_session()
        if self in self._tree.clients:
            self._tree.clients.remove(self)

    async def _ask(self, request: Request) -> Any:
        await self._round_trip()
        is_change = request.kind is Kind.CHANGE
        if is_change and self._rivals:
            await self._rivals.popleft()()
        is_lost = is_change and bool(self._lost_replies)
        if is_lost and not self._lost_replies.popleft():
            raise ConnectionLostError("the request was lost")
        result = self._tree.perform(request, self._tree.nodes, self._session_id)
        if is_lost:
            raise ConnectionLostError("the reply was lost")
        return result

    async def _round_trip(self) -> None:
        await asyncio.sleep(0)
        if self._is_cut_off or self._session_state is not SessionState.CONNECTED:
            raise ConnectionLostError(f"the session is {self._session_state.value}")


def _now() -> float:
    """The time of the running loop, if there is one."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
