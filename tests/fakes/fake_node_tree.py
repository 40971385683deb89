"""The fake of the coordination tree: a server that keeps nodes, and clients of it.

`FakeNodeTree` has every operation of `NodeTree` as a request that the server executes. How a request
gets there, and what can go wrong on its way, is `_ask`: `MemoryNodeTree` beside this file calls the
server and fails when a test says so; the simulation's `SimulatedNodeTree` sends messages through its
network. Both keep the contract of `tests/contracts/node_tree.py`.

The rules of the nodes are `broker.tree.nodes`, which its own tests prove.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    Cancel,
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


class Kind(enum.Enum):
    """The effect of a request at the server."""

    READ = "read"
    CHANGE = "change"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client."""

    kind: Kind
    run: Callable[[Nodes, int], Any] = lambda _nodes, _session_id: None
    """Reads from the nodes, or plans changes of them, for a session."""
    path: str = ""
    """The node to watch."""


class FakeTreeServer:
    """The nodes. Subclasses know the clients."""

    def __init__(self) -> None:
        self.nodes = Nodes()

    def apply(self, changes: Sequence[Change]) -> None:
        """Makes changes visible, and notifies who watches these nodes."""
        for change in changes:
            self._publish(self.nodes, change)

    def end_session(self, session_id: int) -> None:
        """Removes the session's ephemeral nodes."""
        self.apply([Change(path, None) for path in self.nodes.owned_by(session_id)])

    def perform(self, request: Request, nodes: Nodes, session_id: int) -> Any:
        """Returns what was read, or the changes made. `nodes` are those that reads see."""
        if request.kind is Kind.READ:
            return request.run(nodes, session_id)
        if request.kind is Kind.WATCH:
            return None
        changes = request.run(self.nodes, session_id)
        self.apply(changes)
        return changes

    def _publish(self, nodes: Nodes, change: Change) -> None:
        came_or_went = (nodes.get(change.path) is None) != (change.node is None)
        nodes.publish([change])
        self._tell(nodes, change.path, came_or_went=came_or_went)

    def _tell(self, nodes: Nodes, path: str, *, came_or_went: bool) -> None:
        """Notifies the clients that see these nodes."""
        raise NotImplementedError


class FakeNodeTree(ABC):
    """One client."""

    session_timeout_s: float
    session_asked_at: float
    old_copy = ""

    def __init__(self) -> None:
        self._watches = Watches()
        self._session_state = SessionState.LOST
        self._session_id = 0

    @abstractmethod
    async def _ask(self, request: Request) -> Any:
        """Has the server execute a request. Raises what it raises, or `ConnectionLostError`."""

    def _become(self, state: SessionState) -> None:
        if self._session_state is not state:
            self._session_state = state
            self._watches.session_changed(state)

    # NodeTree

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_problem(self) -> str:
        return "the coordinator cannot be reached"

    @property
    def session_state(self) -> SessionState:
        return self._session_state

    async def read(self, path: str) -> Node:
        node: Node = await self._read(lambda nodes: nodes.read(path))
        return node

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        found: list[Node | None] = await self._read(lambda nodes: [*map(nodes.get, paths)])
        return found

    async def children(self, path: str) -> list[str]:
        names: list[str] = await self._read(lambda nodes: nodes.children(path))
        return names

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self._operate(Create(path, data, ephemeral))

    async def create_sequential(self, prefix: str, data: bytes = b"") -> str:
        (change,) = await self._change(
            lambda nodes, session_id: nodes.plan_sequential(prefix, data, session_id)
        )
        return change.path

    async def write(self, path: str, data: bytes, version: int) -> int:
        (change,) = await self._operate(SetData(path, data, version))
        assert change.node is not None
        return change.node.version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._operate(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> None:
        wanted = list(operations)
        await self._change(lambda nodes, session_id: nodes.plan_multi(wanted, session_id))

    async def watch(self, path: str, callback: WatchCallback) -> Cancel:
        return await self._watched(path, self._watches.watch(path, callback))

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        return await self._watched(path, self._watches.watch_children(path, callback))

    def on_session(self, callback: SessionCallback) -> Cancel:
        return self._watches.on_session(callback)

    async def _read(self, read: Callable[[Nodes], Any]) -> Any:
        return await self._ask(Request(Kind.READ, lambda nodes, _session_id: read(nodes)))

    async def _operate(self, operation: Operation) -> list[Change]:
        return await self._change(lambda nodes, session_id: nodes.plan(operation, session_id))

    async def _change(self, plan: Callable[[Nodes, int], list[Change]]) -> list[Change]:
        changes: list[Change] = await self._ask(Request(Kind.CHANGE, plan))
        return changes

    async def _watched(self, path: str, cancel: Cancel) -> Cancel:
        """Known to the server, or not at all."""
        try:
            await self._ask(Request(Kind.WATCH, path=path))
        except BaseException:
            cancel()
            raise
        return cancel
