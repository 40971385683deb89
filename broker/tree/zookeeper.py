"""The node tree of a cluster: a session with ZooKeeper.

`kazoo_client.py` sends requests to the server, and passes everything else from kazoo's thread to the
event loop. This module adds what `NodeTree` promises and kazoo does not do:
- a call while there is no connection fails at once; kazoo would keep it and send it some time later;
- a call without an answer for two thirds of the session timeout ends the connection (as in
  ZooKeeper's own client); kazoo notices no silence as long as there is something to send;
- watches stay (`one_shot_watches.py`), even when a connection or a session ends;
- CONNECTED is announced after a `sync`: a read then sees every change whose answer was lost, even on
  another server of the ensemble.

Invariant: once it is proved that the server holds an older copy of the tree than was seen, nothing of that is read.
The session stays lost, for callers would take what the copy lacks for deleted.

Nothing is sent twice: a lost answer is a `ConnectionLostError`, and the caller's to resolve. After
LOST a new session begins by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from echoless.broker.essential_task import reported_task
from echoless.broker.threads import OutOfThreadsError
from echoless.broker.tree.kazoo_batches import PATHS_MAX
from echoless.broker.tree.kazoo_client import ConnectionCallbacks, GrantedSession, ZooKeeperClient
from echoless.broker.tree.kazoo_errors import error_in, translated
from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    Cancel,
    ConnectionLostError,
    CoordinationError,
    Node,
    NoNodeError,
    Operation,
    SessionCallback,
    SessionState,
    WatchCallback,
    check_path,
)
from echoless.broker.tree.one_shot_watches import Fired, OneShotWatches
from echoless.broker.tree.watches import Listeners

if TYPE_CHECKING:
    from echoless.broker.config.loading import Config

REQUESTS_INFLIGHT_MAX: Final = 100
"""Any more would only wait in kazoo, whose queue blocks the event loop from about 280 on."""
BATCH_MIN: Final = 4
"""Nodes that are read in one request; fewer are asked for one by one."""
ANSWER_SHARE: Final = 2 / 3
"""Share of the session timeout that an answer may take."""

T = TypeVar("T")
Ask = Callable[[], Awaitable[T]]

_log = logging.getLogger(__name__)


class ZooKeeperNodeTree:
    """A `NodeTree` in ZooKeeper. Open it with `open`; use it from one event loop."""

    def __init__(self, config: Config) -> None:
        self._hosts = config.zookeeper_hosts or ""
        self._client = ZooKeeperClient(
            self._hosts, config, ConnectionCallbacks(self._connected, self._disconnected)
        )
        self._is_connected = False
        """Whether requests can be sent; those of callers are sent from CONNECTED on, a little later."""
        self._is_closed = False
        self._session = GrantedSession(
            0, config.zookeeper_session_timeout_ms / 1000, time.monotonic()
        )
        self._session_state = SessionState.LOST
        self._session_listeners: Listeners[SessionState] = Listeners()
        self._was_connected = asyncio.Event()
        self._node_watches = OneShotWatches(self._arm_node, self._arm_nodes)
        self._child_watches = OneShotWatches(self._arm_children)
        self._slots = asyncio.Semaphore(REQUESTS_INFLIGHT_MAX)
        self._restoring: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, config: Config, *, is_read_only: bool = False) -> ZooKeeperNodeTree:
        """Waits for the first connection; creates a missing chroot unless the caller only reads.

        Raises `CoordinationError` after `zookeeper_connection_timeout_ms`.
        """
        tree = cls(config)
        try:
            await tree._connect(config.zookeeper_connection_timeout_ms / 1000)
            if not is_read_only:
                await tree._client.create_chroot()
        except BaseException:
            await tree.close()
            raise
        return tree

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def session_state(self) -> SessionState:
        return self._session_state

    @property
    def session_problem(self) -> str:
        return f"ZooKeeper at {self._hosts}: {self._client.last_problem}"

    @property
    def old_copy(self) -> str:
        return self._client.old_copy

    @property
    def session_timeout_s(self) -> float:
        """The timeout the server has granted."""
        return self._session.timeout_s

    @property
    def session_asked_at(self) -> float:
        age_s = time.monotonic() - self._session.asked_at
        return asyncio.get_running_loop().time() - age_s

    async def read(self, path: str) -> Node:
        return _to_node(*await self._call(path, lambda: self._client.get(path)))

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        if len(paths) < BATCH_MIN:
            return list(await asyncio.gather(*map(self._read_if_there, paths)))
        for path in paths:
            check_path(path)
        self._check_session()
        found = await asyncio.gather(*map(self._read_batch, _batches(paths)))
        return list(chain.from_iterable(found))

    async def _read_batch(self, paths: Sequence[str]) -> list[Node | None]:
        results = await self._request(lambda: self._client.get_many(paths))
        return [_node(path, result) for path, result in zip(paths, results, strict=True)]

    async def children(self, path: str) -> list[str]:
        names = await self._call(path, lambda: self._client.children(path))
        return sorted(names)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self._call(path, lambda: self._client.create(path, data, ephemeral=ephemeral))

    async def create_sequential(self, prefix: str, data: bytes = b"") -> str:
        return await self._call(f"{prefix}0", lambda: self._client.create_sequential(prefix, data))

    async def write(self, path: str, data: bytes, version: int) -> int:
        stat = await self._call(path, lambda: self._client.write(path, data, version))
        return int(stat.version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(path, lambda: self._client.delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            check_path(operation.path)
        self._check_session()
        results = await self._request(lambda: self._client.multi(operations))
        error = error_in(operations, results)
        if error is not None:
            raise error

    async def watch(self, path: str, callback: WatchCallback) -> Cancel:
        check_path(path)
        self._check_session()
        return await self._node_watches.watch(path, callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        check_path(path)
        self._check_session()
        return await self._child_watches.watch(path, callback)

    def on_session(self, callback: SessionCallback) -> Cancel:
        return self._session_listeners.add(callback)

    def expire_session(self) -> None:
        self._client.expire_session()

    async def close(self) -> None:
        self._is_closed = True
        await self._client.end()
        self._disconnected(is_lost=True, problem="closed")

    # Requests

    async def _call(self, path: str, ask: Ask[T]) -> T:
        check_path(path)
        self._check_session()
        return await self._request(ask)

    def _check_session(self) -> None:
        if self._is_closed or self._session_state is not SessionState.CONNECTED:
            state = "closed" if self._is_closed else self._session_state.value
            raise ConnectionLostError(f"the session with ZooKeeper at {self._hosts} is {state}")

    async def _request(self, ask: Ask[T]) -> T:
        """Asks as soon as there is a slot. Raises `CoordinationError`."""
        async with self._slots:
            if not self._is_connected:
                raise ConnectionLostError(f"no connection to ZooKeeper at {self._hosts}")
            try:
                async with asyncio.timeout(self._session.timeout_s * ANSWER_SHARE):
                    return await ask()
            except TimeoutError as error:
                self._client.drop_connection()
                raise ConnectionLostError(f"ZooKeeper at {self._hosts} does not answer") from error

    async def _read_if_there(self, path: str) -> Node | None:
        try:
            return await self.read(path)
        except NoNodeError:
            return None

    async def _arm_node(self, path: str, fired: Fired) -> None:
        await self._request(lambda: self._client.exists(path, fired))

    async def _arm_nodes(self, watches: Mapping[str, Fired], gone: Collection[str]) -> None:
        await asyncio.gather(
            *(self._arm_batch(watches, gone, some) for some in _batches([*watches]))
        )

    async def _arm_batch(
        self, watches: Mapping[str, Fired], gone: Collection[str], paths: Sequence[str]
    ) -> None:
        some = {path: watches[path] for path in paths}
        await self._request(
            lambda: self._client.set_watches(some, [path for path in paths if path in gone])
        )

    async def _arm_children(self, path: str, fired: Fired) -> None:
        """Arms the watch of a node's children, or of its existence while it is missing."""
        is_armed = False
        while not is_armed:
            try:
                await self._request(lambda: self._client.children(path, fired))
                is_armed = True
            except NoNodeError:
                stat = await self._request(lambda: self._client.exists(path, fired))
                is_armed = stat is None

    # The session

    async def _connect(self, timeout_s: float) -> None:
        try:
            self._client.start()
        except OutOfThreadsError as error:
            raise CoordinationError(
                f"no session with ZooKeeper at {self._hosts}: {error}"
            ) from error
        try:
            async with asyncio.timeout(timeout_s):
                await self._was_connected.wait()
        except TimeoutError as error:
            raise CoordinationError(
                f"no connection to ZooKeeper at {self._hosts} within {timeout_s:g} s: "
                f"{self._client.last_problem}"
            ) from error

    def _connected(self, session: GrantedSession) -> None:
        self._is_connected = True
        self._session = session
        self._restoring = reported_task(self._restore(), "restoring of watches")

    async def _restore(self) -> None:
        with contextlib.suppress(ConnectionLostError):  # the next connection begins anew
            await self._request(self._client.sync)
            if self._client.is_older_than_seen():
                self._session_state = SessionState.LOST
                self._session_listeners.notify(SessionState.LOST)
                return
            _log.info(
                "connected to ZooKeeper at %s: session %#x, %g s", self._hosts, *self._session[:2]
            )
            self._become(SessionState.CONNECTED)
            self._was_connected.set()
            await asyncio.gather(self._node_watches.restore(), self._child_watches.restore())

    def _disconnected(self, is_lost: bool, problem: str) -> None:
        self._is_connected = False
        if self._restoring is not None:
            self._restoring.cancel()
        # Between LOST and the next session there is nothing to suspend.
        if self._session_state is not SessionState.LOST:
            state = SessionState.LOST if is_lost else SessionState.SUSPENDED
            if not self._is_closed:
                _log.warning("the session with ZooKeeper is %s: %s", state.value, problem)
            self._become(state)

    def _become(self, state: SessionState) -> None:
        if self._session_state is not state:
            self._session_state = state
            self._session_listeners.notify(state)


def _batches(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    return (paths[start : start + PATHS_MAX] for start in range(0, len(paths), PATHS_MAX))


def _to_node(data: bytes | None, stat: Any) -> Node:
    return Node(data or b"", stat.version, stat.ephemeralOwner)


def _node(path: str, result: Any) -> Node | None:
    """One result of a batch; None: there is no such node. Raises `CoordinationError`."""
    if not isinstance(result, Exception):
        return _to_node(*result)
    error = translated(path, result)
    if isinstance(error, NoNodeError):
        return None
    raise error
