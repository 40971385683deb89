"""A node tree for the time of a start, in which a connection may be lost: calls wait for the next one.

A broker that starts asks the coordinator many things in turn, and a connection that is dropped in between is no reason to
end. Until `end_patience`, each call waits for a connection for as long as a session lasts, and what changes nothing is asked
again when its answer was lost. A change is not: it may have been made, and its caller resolves that. Only a node that was
to be created is looked for here, and taken for this client's if it has the data.

Afterwards it passes every call on, and a call without a connection fails at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    Cancel,
    ConnectionLostError,
    Node,
    NodeExistsError,
    NodeTree,
    Operation,
    SessionCallback,
    SessionState,
    WatchCallback,
)

T = TypeVar("T")


class PatientTree:
    """A `NodeTree` that passes on what it is asked to another one."""

    def __init__(self, tree: NodeTree) -> None:
        self._tree = tree
        self._is_patient = True

    def end_patience(self) -> None:
        """Lets calls fail at once from now on."""
        self._is_patient = False

    @property
    def session_id(self) -> int:
        return self._tree.session_id

    @property
    def session_state(self) -> SessionState:
        return self._tree.session_state

    @property
    def session_problem(self) -> str:
        return self._tree.session_problem

    @property
    def old_copy(self) -> str:
        return self._tree.old_copy

    @property
    def session_timeout_s(self) -> float:
        return self._tree.session_timeout_s

    @property
    def session_asked_at(self) -> float:
        return self._tree.session_asked_at

    def on_session(self, callback: SessionCallback) -> Cancel:
        return self._tree.on_session(callback)

    def expire_session(self) -> None:
        self._tree.expire_session()

    async def close(self) -> None:
        await self._tree.close()

    # What changes nothing

    async def read(self, path: str) -> Node:
        return await self._asked(lambda: self._tree.read(path))

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._asked(lambda: self._tree.read_many(paths))

    async def children(self, path: str) -> list[str]:
        return await self._asked(lambda: self._tree.children(path))

    async def watch(self, path: str, callback: WatchCallback) -> Cancel:
        return await self._asked(lambda: self._tree.watch(path, callback))

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        return await self._asked(lambda: self._tree.watch_children(path, callback))

    # Changes

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self._connected()
        try:
            await self._tree.create(path, data, ephemeral=ephemeral)
        except ConnectionLostError:
            if not self._is_patient:
                raise
            node = (await self.read_many([path]))[0]
            if node is None:
                await self.create(path, data, ephemeral=ephemeral)
            elif node.data != data:
                raise NodeExistsError(path, "another client has created it") from None

    async def create_sequential(self, prefix: str, data: bytes = b"") -> str:
        await self._connected()
        return await self._tree.create_sequential(prefix, data)

    async def write(self, path: str, data: bytes, version: int) -> int:
        await self._connected()
        return await self._tree.write(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._connected()
        await self._tree.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> None:
        await self._connected()
        await self._tree.multi(operations)

    # Patience

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks until there is an answer, at most for as long as a session lasts."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._tree.session_timeout_s
        while self._is_patient and loop.time() < until_s:
            await self._connected()
            try:
                return await ask()
            except ConnectionLostError:
                await asyncio.sleep(0)  # the loss may not have been announced yet
        return await ask()

    async def _connected(self) -> None:
        """Waits for a connection. Raises `ConnectionLostError` after as long as a session lasts."""
        if not self._is_patient or self._tree.session_state is SessionState.CONNECTED:
            return
        timeout_s = self._tree.session_timeout_s
        connected = asyncio.Event()

        def look(state: SessionState) -> None:
            if state is SessionState.CONNECTED:
                connected.set()

        cancel = self._tree.on_session(look)
        try:
            async with asyncio.timeout(None if math.isinf(timeout_s) else timeout_s):
                await connected.wait()
        except TimeoutError:
            raise ConnectionLostError(
                f"the coordinator was lost during the start, and is not back after {timeout_s:g} s: "
                f"{self._tree.session_problem}"
            ) from None
        finally:
            cancel()
