"""The node tree of a cluster: a ZooKeeper session, through kazoo.

kazoo reads the connection in a thread of its own. Everything it has to say (answers, watches, states
of the session) crosses to the event loop in the order of the wire: `_DirectHandler` calls back in that
thread, and what is called back does nothing but `call_soon_threadsafe`. From there on this is
single-threaded.

What kazoo does not do is done here:
- a call while there is no connection fails at once; kazoo would keep it and send it some time later;
- a call without an answer for two thirds of the session timeout ends the connection (as in
  ZooKeeper's own client); kazoo notices no silence as long as there is something to send;
- watches stay (`one_shot_watches.py`), also over the end of a connection or a session;
- CONNECTED is told after a `sync`, when all watches are armed again: a read then sees every change
  whose answer was lost, even on another server of the ensemble;
- the session timeout is the one that the server granted.

Nothing is sent twice: a lost answer is a `ConnectionLostError`, and the caller's to resolve. After
LOST kazoo begins a new session by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import Callback, EventType, KazooState, KeeperState, WatchedEvent
from kazoo.security import CREATOR_ALL_ACL

from broker.config_names import EndpointIdentification
from broker.coordination.node_tree import (
    ANY_VERSION,
    ROOT,
    BadVersionError,
    Cancel,
    Check,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    EphemeralParentError,
    MultiFailedError,
    Node,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionCallback,
    SessionState,
    WatchCallback,
    Write,
    check_path,
)
from broker.coordination.one_shot_watches import Fired, OneShotWatches
from broker.coordination.watches import Listeners

if TYPE_CHECKING:
    from broker.config import Config

REQUESTS_INFLIGHT_MAX: Final = 100
"""More only wait in kazoo, whose queue blocks the event loop from about 280 on."""
ANSWER_SHARE: Final = 2 / 3
"""Of the session timeout: how long an answer may take."""
RECONNECT_DELAY_MAX_S: Final = 1.0
RESTART_DELAY_S: Final = 1.0

_log = logging.getLogger(__name__)


class AccessDeniedError(NodeError):
    """The node belongs to other credentials than ours (`zookeeper_digest`)."""


_REFUSALS: Final[dict[type[Exception], tuple[type[NodeError], str]]] = {
    kazoo_errors.NoNodeError: (NoNodeError, "no such node"),
    kazoo_errors.NodeExistsError: (NodeExistsError, "there is such a node"),
    kazoo_errors.BadVersionError: (BadVersionError, "the node has another version"),
    kazoo_errors.NotEmptyError: (NotEmptyError, "the node has children"),
    kazoo_errors.NoChildrenForEphemeralsError: (
        EphemeralParentError,
        "an ephemeral node has no children",
    ),
    kazoo_errors.NoAuthError: (AccessDeniedError, "ZooKeeper denies access"),
    kazoo_errors.InvalidACLError: (NodeError, "ZooKeeper knows no credentials of ours"),
    kazoo_errors.BadArgumentsError: (NodeError, "ZooKeeper does not take the path"),
    kazoo_errors.QuotaExceededError: (NodeError, "the quota is used up"),
}
"""Errors of the server that say: nothing was changed. With all others, nobody knows."""


class ZooKeeperNodeTree:
    """A `NodeTree` in ZooKeeper. Open it with `open`; use it from one event loop."""

    def __init__(self, config: Config) -> None:
        hosts, slash, chroot = (config.zookeeper_hosts or "").partition("/")
        self._hosts = hosts
        self._chroot = slash + chroot
        self._loop = asyncio.get_running_loop()
        self._client = _Client(hosts, config)
        self._client.add_listener(self._kazoo_state_changed)
        self._is_connected = False
        """Whether requests can be sent; the callers' turn comes with CONNECTED, a little later."""
        self._is_closed = False
        self._session_state = SessionState.LOST
        self._session_id = 0
        self._session_timeout_s = config.zookeeper_session_timeout_ms / 1000
        self._session_listeners: Listeners[SessionState] = Listeners()
        self._has_connected = asyncio.Event()
        self._node_watches = OneShotWatches(self._arm_node)
        self._child_watches = OneShotWatches(self._arm_children)
        self._slots = asyncio.Semaphore(REQUESTS_INFLIGHT_MAX)
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._restoring: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, config: Config) -> ZooKeeperNodeTree:
        """Waits for the first connection, and creates the chroot where it is missing.

        Raises `CoordinationError` after `zookeeper_connection_timeout_ms`.
        """
        tree = cls(config)
        try:
            await tree._connect(config.zookeeper_connection_timeout_ms / 1000)
            await tree._create_chroot()
        except BaseException:
            await tree.close()
            raise
        return tree

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_state(self) -> SessionState:
        return self._session_state

    @property
    def session_timeout_s(self) -> float:
        return self._session_timeout_s

    async def read(self, path: str) -> Node:
        data, stat = await self._call(path, self._client.get_async)
        return Node(data or b"", stat.version, stat.ephemeralOwner)

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        return list(await asyncio.gather(*map(self._read_if_there, paths)))

    async def children(self, path: str) -> list[str]:
        return sorted(await self._call(path, self._client.get_children_async))

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self._call(path, self._client.create_async, data, ephemeral=ephemeral)

    async def write(self, path: str, data: bytes, version: int) -> int:
        stat = await self._call(path, self._client.set_async, data, version)
        return int(stat.version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(path, self._client.delete_async, version)

    async def multi(self, operations: Sequence[Operation]) -> None:
        transaction = self._client.transaction()
        for operation in operations:
            check_path(operation.path)
            _add(transaction, operation, self._full_path(operation.path))
        results = await self._call(ROOT, lambda _: transaction.commit_async())
        # The operations before the failed one were rolled back, those after it were not tried.
        for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
            if isinstance(result, Exception) and not isinstance(
                result, kazoo_errors.RolledBackError
            ):
                cause = _translated(operation.path, result)
                raise MultiFailedError(index, cause) if isinstance(cause, NodeError) else cause

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

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._client.end)
        self._disconnected(SessionState.LOST, "closed")

    # The way in: requests

    async def _call(self, path: str, send: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """A request about one node, for a caller outside. Raises `CoordinationError`."""
        check_path(path)
        self._check_session()
        return await self._request(path, send, *args, **options)

    async def _request(
        self, path: str, send: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        async with self._slots:
            if not self._is_connected:
                raise ConnectionLostError(f"no connection to ZooKeeper at {self._hosts}")
            answer = self._loop.create_future()
            self._unanswered[answer] = None
            try:
                kazoo_result = send(self._full_path(path), *args, **options)
                kazoo_result.rawlink(functools.partial(self._cross, _settle, answer))
                async with asyncio.timeout(self._session_timeout_s * ANSWER_SHARE):
                    return await answer
            except TimeoutError as error:
                self._client.drop_connection()
                raise ConnectionLostError(f"{path}: ZooKeeper does not answer") from error
            except kazoo_errors.KazooException as error:
                raise _translated(path, error) from error
            finally:
                del self._unanswered[answer]

    async def _read_if_there(self, path: str) -> Node | None:
        try:
            return await self.read(path)
        except NoNodeError:
            return None

    def _check_session(self) -> None:
        if self._is_closed or self._session_state is not SessionState.CONNECTED:
            state = "closed" if self._is_closed else self._session_state.value
            raise ConnectionLostError(f"the session with ZooKeeper at {self._hosts} is {state}")

    def _full_path(self, path: str) -> str:
        return self._chroot + path if path != ROOT else self._chroot or ROOT

    async def _arm_node(self, path: str, fired: Fired) -> None:
        await self._request(path, self._client.exists_async, watch=self._watcher(fired))

    async def _arm_children(self, path: str, fired: Fired) -> None:
        """A node that does not exist has no children to watch: first it has to come."""
        watcher = self._watcher(fired)
        while True:
            try:
                await self._request(path, self._client.get_children_async, watch=watcher)
                return
            except NoNodeError:
                if await self._request(path, self._client.exists_async, watch=watcher) is None:
                    return

    # The way out: what kazoo's thread says

    def _cross(self, function: Callable[..., None], *args: Any) -> None:
        """From kazoo's thread to the event loop; where that is closed, nobody is left to tell."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _watcher(self, fired: Fired) -> _Watcher:
        return _Watcher(fired, self._cross)

    def _kazoo_state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            session_id, _ = self._client.client_id
            self._cross(self._connected, session_id, self._client.session_timeout_s)
            return
        lost = state == KazooState.LOST
        session_state = SessionState.LOST if lost else SessionState.SUSPENDED
        self._cross(self._disconnected, session_state, self._client.last_problem)
        if lost and self._client.client_state != KeeperState.EXPIRED_SESSION:
            self._cross(self._client_ended)

    def _connected(self, session_id: int, session_timeout_s: float) -> None:
        self._is_connected = True
        self._session_id = session_id
        self._session_timeout_s = session_timeout_s
        self._restoring = self._loop.create_task(self._restore())

    async def _restore(self) -> None:
        try:
            await self._request(ROOT, self._client.sync_async)
            await asyncio.gather(self._node_watches.arm_all(), self._child_watches.arm_all())
        except ConnectionLostError:
            return  # the next connection begins anew
        _log.info(
            "connected to ZooKeeper at %s: session %#x, timeout %g s",
            self._hosts,
            self._session_id,
            self._session_timeout_s,
        )
        self._become(SessionState.CONNECTED)
        self._has_connected.set()
        self._node_watches.tell_all()
        self._child_watches.tell_all()

    def _disconnected(self, state: SessionState, problem: str) -> None:
        """Nothing that was asked will be answered now, whatever kazoo does about it."""
        self._is_connected = False
        if self._restoring is not None:
            self._restoring.cancel()
        for answer in self._unanswered:
            if not answer.done():
                answer.set_exception(kazoo_errors.ConnectionLoss(problem))
        # Between LOST and the next session there is nothing to suspend.
        if self._session_state is not SessionState.LOST:
            if not self._is_closed:
                _log.warning("the session with ZooKeeper is %s: %s", state.value, problem)
            self._become(state)

    def _become(self, state: SessionState) -> None:
        if self._session_state is not state:
            self._session_state = state
            self._session_listeners.tell(state)

    def _client_ended(self) -> None:
        """kazoo's thread has ended: by `close`, or for an answer that it could not make sense of."""
        if not self._is_closed:
            self._loop.call_later(RESTART_DELAY_S, self._restart_client)

    def _restart_client(self) -> None:
        if not self._is_closed:
            self._client.start_async()

    # The beginning

    async def _connect(self, timeout_s: float) -> None:
        self._client.start_async()
        try:
            async with asyncio.timeout(timeout_s):
                await self._has_connected.wait()
        except TimeoutError as error:
            raise CoordinationError(
                f"no connection to ZooKeeper at {self._hosts} within {timeout_s:g} s: "
                f"{self._client.last_problem}"
            ) from error

    async def _create_chroot(self) -> None:
        names = self._chroot.split("/")[1:]
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            with contextlib.suppress(NodeExistsError):
                await self._request(ROOT, lambda _, path=path: self._client.create_async(path))


class _Client(KazooClient):
    """kazoo, set up for us. Methods are called on the event loop unless they say otherwise."""

    _connection: _Connection

    def __init__(self, hosts: str, config: Config) -> None:
        self._problems = _ProblemLog()
        # Below WARNING it would show credentials; of this logger nobody can ask for more.
        logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001
        logger.addHandler(self._problems)
        digest, keystore = config.zookeeper_digest, config.zookeeper_ssl_keystore_location
        algorithm = config.zookeeper_ssl_endpoint_identification_algorithm
        self._direct_handler = _DirectHandler()
        super().__init__(
            hosts=hosts,
            timeout=config.zookeeper_session_timeout_ms / 1000,
            handler=self._direct_handler,
            connection_retry={
                "max_tries": -1,
                "delay": 0.05,
                "max_delay": RECONNECT_DELAY_MAX_S,
            },
            logger=logger,
            auth_data=[("digest", digest)] if digest else None,
            default_acl=CREATOR_ALL_ACL if digest else None,
            use_ssl=config.zookeeper_ssl_client_enable,
            check_hostname=algorithm is EndpointIdentification.HTTPS,
            ca=config.zookeeper_ssl_truststore_location,
            certfile=keystore,
            keyfile=keystore,
            keyfile_password=config.zookeeper_ssl_keystore_password,
        )
        assert self._conn_retry is not None
        self._connection = _Connection(self, self._conn_retry.copy(), logger=logger)

    @property
    def session_timeout_s(self) -> float:
        """What the server granted; to be asked after the first connection."""
        return self._connection.session_timeout_ms / 1000

    @property
    def last_problem(self) -> str:
        """Why there is no connection, in kazoo's words."""
        return self._problems.last

    def drop_connection(self) -> None:
        """Makes kazoo's thread find the connection broken."""
        connection = self._direct_handler.connection
        if connection is not None:
            with contextlib.suppress(OSError):
                # Not `SSLSocket.shutdown`, which makes kazoo's thread read the rest as plain text.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def end(self) -> None:
        """Ends the session and the thread. Blocks: not to be called on the event loop."""
        try:
            self.stop()
            self.close()
        except Exception:  # noqa: BLE001 - kazoo raises plain ones; the session times out then
            _log.warning("the session with ZooKeeper could not be closed", exc_info=True)


class _Connection(ConnectionHandler):
    """kazoo's connection; remembers of the server's first answer what kazoo forgets."""

    session_timeout_ms = 0

    def zk_loop(self) -> None:
        with contextlib.suppress(Exception):  # logged by then, and told as the end of the session
            super().zk_loop()

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.session_timeout_ms = answer[0].time_out
        return answer


class _DirectHandler(SequentialThreadingHandler):
    """Calls back in the thread that reads the connection: nothing is overtaken, nothing blocks.

    kazoo's own handlers have one thread for watches and one for answers.
    """

    running = False  # so kazoo calls back at once, and not through the queue of a thread
    connection: socket.socket | None = None

    def start(self) -> None:
        """There are no threads to start."""

    def stop(self) -> None:
        """Nor to stop."""

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **options: Any) -> Any:
        self.connection = super().create_connection(*args, **options)
        return self.connection


class _ProblemLog(logging.Handler):
    """What kazoo complains of: the last complaint is the reason that we give, errors are logged."""

    last = "nobody answers"

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            _log.error("kazoo: %s", record.getMessage(), exc_info=record.exc_info)
        if record.msg != "Transition to CONNECTING":
            self.last = record.getMessage()


class _Watcher:
    """What kazoo calls when a watch fires; equal for the same `fired`, of which kazoo keeps one."""

    def __init__(self, fired: Fired, cross: Callable[[Fired], None]) -> None:
        self._fired = fired
        self._cross = cross

    def __call__(self, event: WatchedEvent) -> None:
        # At the end of a connection kazoo fires everything as NONE; we have heard of that.
        if event.type != EventType.NONE:
            self._cross(self._fired)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watcher) and self._fired is other._fired

    def __hash__(self) -> int:
        return hash(self._fired)


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    error = result.exception
    if error is None:
        answer.set_result(result.value)
    elif isinstance(error, kazoo_errors.KazooException):
        answer.set_exception(error)
    else:  # kazoo could not read the answer
        answer.set_exception(kazoo_errors.ConnectionLoss(repr(error)))


def _translated(path: str, error: Exception) -> CoordinationError:
    refusal, message = _REFUSALS.get(type(error), (None, ""))
    if refusal is not None:
        return refusal(path, message)
    return ConnectionLostError(f"{path}: {type(error).__name__} {error}".rstrip())


def _add(transaction: Any, operation: Operation, full_path: str) -> None:
    match operation:
        case Create(_, data, ephemeral):
            transaction.create(full_path, data, ephemeral=ephemeral)
        case Write(_, data, version):
            transaction.set_data(full_path, data, version)
        case Delete(_, version):
            transaction.delete(full_path, version)
        case Check(_, version):
            transaction.check(full_path, version)
