"""The client's side of the coordinator: `NodeTree` over the network, with a session.

A connection that breaks leaves the client without the answers of what it had sent, executed or not.
The client calls itself SUSPENDED after two thirds of the timeout in silence, and LOST when a server
says that the session has ended; then it begins another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from echoless.broker.tree.node_tree import (
    ConnectionLostError,
    CoordinationError,
    Operation,
    SessionState,
)
from tests.fakes.fake_node_tree import FakeNodeTree, Kind, Request
from tests.simulation.coordinator import Execute, Session, TreeConnection, TreeServer
from tests.simulation.network import Network
from tests.simulation.process import Process

RECONNECT_S: Final = 0.3
CONNECT_TIMEOUT_S: Final = 1.0


class SimulatedNodeTree(FakeNodeTree):
    """`NodeTree` of one process."""

    def __init__(
        self, server: TreeServer, network: Network, node: str, process: Process, timeout_s: float
    ) -> None:
        super().__init__()
        self.server = server
        self.network = network
        self.node = node
        self.process = process
        self.session_timeout_s = timeout_s
        self.session_asked_at = 0.0
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
        if self._session_state is SessionState.CONNECTED:
            self._become(SessionState.SUSPENDED)
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionLostError("the connection broke"))
        self._tasks.append(asyncio.create_task(self._reach_server()))

    # The session

    async def _reach_server(self) -> None:
        """Returns once a session is resumed or a new one has begun."""
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
        asked_at = self.network.loop.time()
        connection.up.send(connection.connect, self._session_id, self.session_timeout_s, watched)
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
        if self._session_id == 0:
            self.session_asked_at = asked_at
        return session_id

    async def _keep_alive(self) -> None:
        """Sends a sign of life in every third of the timeout, and notices silence."""
        while True:
            await asyncio.sleep(self.session_timeout_s / 3)
            connection = self._connection
            if connection is None or self._handshake is not None:
                continue
            silence_s = self.network.loop.time() - self._last_heard
            if silence_s > self.session_timeout_s * 2 / 3:
                connection.broken()
            elif silence_s > self.session_timeout_s / 4:
                connection.up.send(connection.execute, 0, _nothing, True)

    # NodeTree

    async def multi(self, operations: Sequence[Operation]) -> None:
        if self.before_next_multi is not None:
            call, self.before_next_multi = self.before_next_multi, None
            call()
        await super().multi(operations)

    def expire_session(self) -> None:
        """Ends the session at the server; this client hears of it later."""
        self.server.expire(self._session_id)

    async def close(self) -> None:
        if self._is_closed:
            return
        if self._session_state is SessionState.CONNECTED:
            with contextlib.suppress(CoordinationError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._send(self.server.end)
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

    async def _ask(self, request: Request) -> Any:
        is_watch = request.kind is Kind.WATCH
        if is_watch:
            self._watched_paths[request.path] = None

        def execute(session: Session) -> Any:
            """At the server to which the client is connected; a watch of the session stays when it is cancelled."""
            assert session.connection is not None
            if is_watch:
                session.watched[request.path] = None
            return self.server.perform(request, session.connection.nodes, session.session_id)

        return await self._send(execute, is_read=request.kind is Kind.READ)

    async def _send(self, request: Execute, *, is_read: bool = False) -> Any:
        connection = self._connection
        if self._session_state is not SessionState.CONNECTED or connection is None:
            raise ConnectionLostError(f"the session is {self._session_state.value}")
        self._numbers += 1
        future = self._waiting[self._numbers] = self.network.loop.create_future()
        connection.up.send(connection.execute, self._numbers, request, is_read)
        if self.network.happens(self.network.weather.break_probability):
            delay_s = self.network.delay_s() + self.network.delay_s() * self.network.rng.random()
            self.process.later(delay_s, connection.broken)
        return await future


def _nothing(_session: Session) -> None:
    """The request of a keep-alive."""


def _set(future: asyncio.Future[int], value: int) -> None:
    if not future.done():
        future.set_result(value)
