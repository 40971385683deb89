"""The coordinator: one tree on a server, and clients with sessions that reach it over the network.

As ZooKeeper: requests of one connection are executed and answered in order; a connection that breaks
leaves the client without the answers of what it had sent, executed or not; a session ends when the
server has not heard of it for its timeout, by the server's clock, and its client hears of that when
it reaches the server again. The client calls itself SUSPENDED after two thirds of the timeout in
silence. After an outage of the server every session starts its timeout anew.

The rules of the nodes are `broker.coordination.nodes`, which its own tests prove.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from broker.coordination.node_tree import (
    ANY_VERSION,
    Cancel,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    Node,
    Operation,
    SessionCallback,
    SessionState,
    WatchCallback,
    Write,
    parent_of,
)
from broker.coordination.nodes import Change, Nodes
from broker.coordination.watches import Watches
from tests.simulation.network import Channel, Network
from tests.simulation.process import Process

NODE: Final = "coordinator"
TICK_S: Final = 0.3
"""A session ends up to so much later than it could."""
RECONNECT_S: Final = 0.3
CONNECT_TIMEOUT_S: Final = 1.0

Execute = Callable[["Session"], Any]


class Session:
    """What the server knows of one client."""

    def __init__(self, session_id: int, timeout_s: float, client: str) -> None:
        self.session_id = session_id
        self.timeout_s = timeout_s
        self.client = client
        self.last_heard = 0.0
        self.ended_at: float | None = None
        self.was_cut_short = False
        """It ended before its time: no client can know when."""
        self.connection: TreeConnection | None = None
        self.watched: dict[str, None] = {}


class TreeServer:
    """The nodes, the sessions, and the time at which each of them ended."""

    def __init__(self, network: Network) -> None:
        self.nodes = Nodes()
        self.sessions: dict[int, Session] = {}
        self.is_down = False
        self.process = Process(network.loop, NODE)
        self.on_change: Callable[[Change], None] = lambda _change: None
        """Sees every change of a node."""
        self._network = network
        self._loop = network.loop

    def open_session(self, timeout_s: float, client: str) -> Session:
        session = Session(len(self.sessions) + 1, timeout_s, client)
        self.sessions[session.session_id] = session
        session.last_heard = self._loop.time()
        self.process.later(timeout_s, self._look_after, session)
        return session

    def expire(self, session_id: int) -> None:
        """Ends a session before its time: its client hears of it later."""
        session = self.sessions[session_id]
        session.was_cut_short = True
        self._expire(session)

    def _expire(self, session: Session) -> None:
        self.end(session)
        if session.connection is not None:
            session.connection.break_off()

    def end(self, session: Session) -> None:
        """Removes the session's ephemeral nodes."""
        if session.ended_at is None:
            session.ended_at = self._loop.time()
            owned = self.nodes.owned_by(session.session_id)
            self.apply([Change(path, None) for path in owned])

    def go_down(self) -> None:
        """Nobody is connected any more; the sessions wait."""
        self.is_down = True
        for session in self.sessions.values():
            if session.connection is not None:
                session.connection.break_off()

    def come_up(self) -> None:
        self.is_down = False
        for session in self.sessions.values():
            session.last_heard = self._loop.time()

    def execute(self, connection: TreeConnection, number: int, request: Execute) -> None:
        """One request of a connection, in order."""
        session = connection.session
        if self.is_down or session is None or session.connection is not connection:
            return
        session.last_heard = self._loop.time()
        try:
            result = request(session)
        except CoordinationError as error:
            result = error
        connection.down.send(connection.answered, number, result)

    def apply(self, changes: Sequence[Change]) -> None:
        """Makes changes visible, then tells who watches."""
        for change in changes:
            came_or_went = (self.nodes.get(change.path) is None) != (change.node is None)
            self.nodes.publish([change])
            self.on_change(change)
            for session in self.sessions.values():
                if session.connection is not None and _concerns(session.watched, change.path):
                    session.connection.tell(change.path, came_or_went=came_or_went)

    def _look_after(self, session: Session) -> None:
        """Ends the session when its time is up, not before."""
        if session.ended_at is not None:
            return
        left = session.last_heard + session.timeout_s - self._loop.time()
        if self.is_down or left > 0:
            self.process.later(
                max(left, 0.01) if not self.is_down else TICK_S, self._look_after, session
            )
            return
        self.process.later(self._network.rng.random() * TICK_S, self._expire_if_silent, session)

    def _expire_if_silent(self, session: Session) -> None:
        is_silent = session.last_heard + session.timeout_s <= self._loop.time()
        if is_silent and not self.is_down and session.ended_at is None:
            self._expire(session)
        else:
            self._look_after(session)


def _concerns(watched: dict[str, None], path: str) -> bool:
    return path in watched or parent_of(path) in watched


class TreeConnection:
    """One TCP connection of a client to the server."""

    def __init__(self, client: SimulatedNodeTree) -> None:
        network, server = client.network, client.server
        self.client = client
        self.session: Session | None = None
        self.is_broken = False
        self.up = Channel(network, client.node, NODE, server.process)
        self.down = Channel(network, NODE, client.node, client.process)

    # On the server

    def connect(self, session_id: int, timeout_s: float, watched: Iterable[str]) -> None:
        """The first message: goes on with a session, or (0) begins one, and sets its watches."""
        server = self.client.server
        if server.is_down:
            return
        session = server.sessions.get(session_id)
        if session is None:
            session = server.open_session(timeout_s, self.client.node)
        elif session.ended_at is not None:
            self.down.send(self.client.refused, self)
            return
        elif session.connection is not None:
            session.connection.break_off()
        session.last_heard = self.client.network.loop.time()
        session.connection = self
        session.watched.update(dict.fromkeys(watched))
        self.session = session
        self.down.send(self.client.accepted, self, session.session_id)

    def break_off(self) -> None:
        """The server closes the connection; the client notices when it hears of it."""
        if self.session is not None and self.session.connection is self:
            self.session.connection = None
        self.down.send(self.broken)

    def tell(self, path: str, *, came_or_went: bool) -> None:
        """Sends a watch's event."""
        self.down.send(self.client.hear, self, path, came_or_went)

    # At the client

    def answered(self, number: int, result: Any) -> None:
        self.client.answered(self, number, result)

    def broken(self) -> None:
        """The client has no connection any more; what it sent may have arrived."""
        if not self.is_broken:
            self.is_broken = True
            self.down.close()
            if self.client.network.rng.random() < 1 / 2:
                self.up.close()
            self.client.disconnected(self)


class SimulatedNodeTree:
    """`NodeTree` of one process."""

    def __init__(
        self, server: TreeServer, network: Network, node: str, process: Process, timeout_s: float
    ) -> None:
        self.server = server
        self.network = network
        self.node = node
        self.process = process
        self._timeout_s = timeout_s
        self._watches = Watches()
        self._state = SessionState.LOST
        self._session_id = 0
        self._connection: TreeConnection | None = None
        self._last_heard = 0.0
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._handshake: asyncio.Future[int] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._watched_paths: dict[str, None] = {}
        self._is_closed = False
        self.before_next_multi: Callable[[], None] | None = None
        """Called once, when the next atomic write is about to be sent."""

    @classmethod
    async def open(
        cls, server: TreeServer, network: Network, node: str, process: Process, timeout_s: float
    ) -> SimulatedNodeTree:
        """Connects. Raises `ConnectionLostError` when the server cannot be reached for long."""
        tree = cls(server, network, node, process, timeout_s)
        try:
            async with asyncio.timeout(2 * timeout_s):
                await tree._reach_server()
        except TimeoutError:
            raise ConnectionLostError("the coordinator cannot be reached") from None
        tree._tasks = [asyncio.create_task(tree._keep_alive())]
        return tree

    # What the connection reports

    def accepted(self, connection: TreeConnection, session_id: int) -> None:
        if connection is self._connection and self._handshake is not None:
            _set(self._handshake, session_id)

    def refused(self, connection: TreeConnection) -> None:
        """The session has ended on the server."""
        if connection is self._connection and self._handshake is not None:
            _set(self._handshake, 0)

    def answered(self, connection: TreeConnection, number: int, result: Any) -> None:
        if connection is not self._connection:
            return
        self._last_heard = self.network.loop.time()
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    def hear(self, connection: TreeConnection, path: str, came_or_went: bool) -> None:
        if connection is self._connection:
            self._last_heard = self.network.loop.time()
            self._watches.node_changed(path, came_or_went=came_or_went)

    def disconnected(self, connection: TreeConnection) -> None:
        if connection is not self._connection or self._is_closed:
            return
        self._connection = None
        if self._handshake is not None:
            return
        waiting, self._waiting = self._waiting, {}
        if self._state is SessionState.CONNECTED:
            self._become(SessionState.SUSPENDED)
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionLostError("the connection broke"))
        self._tasks.append(asyncio.create_task(self._reach_server()))

    # The session

    async def _reach_server(self) -> None:
        """Until a session goes on or a new one has begun."""
        while True:
            session_id = await self._shake_hands()
            if session_id is None:
                await asyncio.sleep(RECONNECT_S * (0.5 + self.network.rng.random()))
            elif session_id == 0:
                self._session_id = 0
                self._become(SessionState.LOST)
            else:
                break
        self._session_id = session_id
        self._last_heard = self.network.loop.time()
        self._become(SessionState.CONNECTED)
        self._watches.anything_may_have_changed()

    async def _shake_hands(self) -> int | None:
        """The session's id; 0: it has ended; None: no answer."""
        connection = self._connection = TreeConnection(self)
        handshake = self._handshake = self.network.loop.create_future()
        watched = list(self._watched_paths)
        connection.up.send(connection.connect, self._session_id, self._timeout_s, watched)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                session_id: int = await handshake
        except TimeoutError:
            connection.broken()
            return None
        finally:
            self._handshake = None
        if connection.is_broken:
            return None
        return session_id

    async def _keep_alive(self) -> None:
        """Sends a sign of life in every third of the timeout, and notices silence."""
        while True:
            await asyncio.sleep(self._timeout_s / 3)
            connection = self._connection
            if connection is None or self._handshake is not None:
                continue
            silence_s = self.network.loop.time() - self._last_heard
            if silence_s > self._timeout_s * 2 / 3:
                connection.broken()
            elif silence_s > self._timeout_s / 4:
                connection.up.send(self.server.execute, connection, 0, _nothing)

    def _become(self, state: SessionState) -> None:
        if self._state is not state:
            self._state = state
            self._watches.session_changed(state)

    # NodeTree

    @property
    def session_timeout_s(self) -> float:
        return self._timeout_s

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_state(self) -> SessionState:
        return self._state

    async def read(self, path: str) -> Node:
        node: Node = await self._ask(lambda _: self.server.nodes.read(path))
        return node

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = self.server.nodes
        found: list[Node | None] = await self._ask(lambda _: [nodes.get(path) for path in paths])
        return found

    async def children(self, path: str) -> list[str]:
        names: list[str] = await self._ask(lambda _: self.server.nodes.children(path))
        return names

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self._change(Create(path, data, ephemeral))

    async def write(self, path: str, data: bytes, version: int) -> int:
        (change,) = await self._change(Write(path, data, version))
        assert change.node is not None
        return change.node.version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._change(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> None:
        operations = list(operations)

        def execute(session: Session) -> None:
            server = self.server
            server.apply(server.nodes.plan_multi(operations, session.session_id))

        if self.before_next_multi is not None:
            call, self.before_next_multi = self.before_next_multi, None
            call()
        await self._ask(execute)

    async def watch(self, path: str, callback: WatchCallback) -> Cancel:
        cancel = self._watches.watch(path, callback)
        self._watched_paths[path] = None
        return await self._watched(path, cancel)

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        cancel = self._watches.watch_children(path, callback)
        self._watched_paths[path] = None
        return await self._watched(path, cancel)

    def on_session(self, callback: SessionCallback) -> Cancel:
        return self._watches.on_session(callback)

    async def close(self) -> None:
        if self._is_closed:
            return
        if self._state is SessionState.CONNECTED:
            with contextlib.suppress(CoordinationError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._ask(self.server.end)
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._connection is not None:
            self._connection.broken()
        self._become(SessionState.LOST)

    def vanish(self) -> None:
        """The machine is gone, and with it what it had not yet put on the wire."""
        if self._connection is not None:
            self._connection.up.close()

    async def _change(self, operation: Operation) -> list[Change]:
        def execute(session: Session) -> list[Change]:
            changes = self.server.nodes.plan(operation, session.session_id)
            self.server.apply(changes)
            return changes

        changes: list[Change] = await self._ask(execute)
        return changes

    async def _watched(self, path: str, cancel: Cancel) -> Cancel:
        """Known to the server, or not at all; a watch of this session stays when it is cancelled."""

        def execute(session: Session) -> None:
            session.watched[path] = None

        try:
            await self._ask(execute)
        except BaseException:
            cancel()
            raise
        return cancel

    async def _ask(self, request: Execute) -> Any:
        connection = self._connection
        if self._state is not SessionState.CONNECTED or connection is None:
            raise ConnectionLostError(f"the session is {self._state.value}")
        self._numbers += 1
        future = self._waiting[self._numbers] = self.network.loop.create_future()
        connection.up.send(self.server.execute, connection, self._numbers, request)
        if self.network.happens(self.network.weather.break_probability):
            delay_s = self.network.delay_s() + self.network.delay_s() * self.network.rng.random()
            self.process.later(delay_s, connection.broken)
        return await future


def _nothing(_session: Session) -> None:
    """What a sign of life asks for."""


def _set(future: asyncio.Future[int], value: int) -> None:
    if not future.done():
        future.set_result(value)
