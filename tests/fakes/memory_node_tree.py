"""The node tree in memory: one `MemoryTree`, and a `MemoryNodeTree` per client session.

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
from collections.abc import Awaitable, Callable, Sequence

from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    Cancel,
    ConnectionLostError,
    Create,
    Delete,
    Node,
    Operation,
    SessionCallback,
    SessionState,
    SetData,
    WatchCallback,
)
from echoless.broker.tree.nodes import Change, Nodes
from echoless.broker.tree.watches import Watches

Rival = Callable[[], Awaitable[object]]


async def turns(count: int = 200) -> None:
    """Gives all other tasks this many turns, so that every consequence of earlier events is done."""
    for _ in range(count):
        await asyncio.sleep(0)


class MemoryTree:
    """The server: the nodes, and the connected clients."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.clients: list[MemoryNodeTree] = []
        self._session_ids = itertools.count(1)

    def connect(self) -> MemoryNodeTree:
        """A new client with its own session."""
        client = MemoryNodeTree(self)
        self.clients.append(client)
        return client

    def next_session_id(self) -> int:
        return next(self._session_ids)

    def apply(self, changes: Sequence[Change]) -> None:
        """Makes changes visible and notifies every connected client with a watch."""
        for path, node in changes:
            came_or_went = (self.nodes.get(path) is None) != (node is None)
            self.nodes.publish([Change(path, node)])
            for client in self.clients:
                client.hear(path, came_or_went=came_or_went)

    def end_session(self, session_id: int) -> None:
        """Removes the session's ephemeral nodes."""
        self.apply([Change(path, None) for path in self.nodes.owned_by(session_id)])


class MemoryNodeTree:
    """One client. Every call gives the other tasks a turn first, as a network would."""

    def __init__(self, tree: MemoryTree) -> None:
        self.session_timeout_s = math.inf
        """Set by tests; nothing here ends a session by itself."""
        self._tree = tree
        self._watches = Watches()
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

    # NodeTree

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_state(self) -> SessionState:
        return self._session_state

    async def read(self, path: str) -> Node:
        await self._round_trip()
        return self._tree.nodes.read(path)

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        await self._round_trip()
        return [self._tree.nodes.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        await self._round_trip()
        return self._tree.nodes.children(path)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        operation = Create(path, data, ephemeral)
        await self._change(lambda: self._tree.nodes.plan(operation, self._session_id))

    async def create_sequential(self, prefix: str, data: bytes = b"") -> str:
        nodes = self._tree.nodes
        (change,) = await self._change(
            lambda: nodes.plan_sequential(prefix, data, self._session_id)
        )
        return change.path

    async def write(self, path: str, data: bytes, version: int) -> int:
        operation = SetData(path, data, version)
        changes = await self._change(lambda: self._tree.nodes.plan(operation, self._session_id))
        (node,) = (change.node for change in changes)
        assert node is not None
        return node.version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        operation = Delete(path, version)
        await self._change(lambda: self._tree.nodes.plan(operation, self._session_id))

    async def multi(self, operations: Sequence[Operation]) -> None:
        await self._change(lambda: self._tree.nodes.plan_multi(operations, self._session_id))

    async def watch(self, path: str, callback: WatchCallback) -> Cancel:
        await self._round_trip()
        return self._watches.watch(path, callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        await self._round_trip()
        return self._watches.watch_children(path, callback)

    def on_session(self, callback: SessionCallback) -> Cancel:
        return self._watches.on_session(callback)

    async def close(self) -> None:
        if self._session_state is not SessionState.LOST:
            self.expire_session()
        if self in self._tree.clients:
            self._tree.clients.remove(self)

    async def _change(self, plan: Callable[[], list[Change]]) -> list[Change]:
        await self._round_trip()
        if self._rivals:
            await self._rivals.popleft()()
        is_lost = bool(self._lost_replies)
        if is_lost and not self._lost_replies.popleft():
            raise ConnectionLostError("the request was lost")
        changes = plan()
        self._tree.apply(changes)
        if is_lost:
            raise ConnectionLostError("the reply was lost")
        return changes

    async def _round_trip(self) -> None:
        await asyncio.sleep(0)
        if self._is_cut_off or self._session_state is not SessionState.CONNECTED:
            raise ConnectionLostError(f"the session is {self._session_state.value}")

    def _become(self, state: SessionState) -> None:
        if self._session_state is not state:
            self._session_state = state
            self._watches.session_changed(state)


def _now() -> float:
    """The time of the running loop, if there is one."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
