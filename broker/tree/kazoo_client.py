"""kazoo on one event loop: the only module that knows it.

kazoo reads the connection in a thread of its own. Everything it reports (answers, watches, session
states) crosses to the event loop in the order of the wire: `_DirectHandler` calls back in that
thread, and the callbacks do nothing but `call_soon_threadsafe`. From there on everything is
single-threaded.

Requests return futures. A future raises a `NodeError` if the server refuses and has changed
nothing, and `ConnectionLostError` for everything else; none outlives its connection. Nothing is
ever sent twice.

kazoo reconnects by itself, for ever, and begins a new session if the old one has expired. If its
thread ends (because of an answer that makes no sense), it is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import Callback, EventType, KazooState, WatchedEvent
from kazoo.security import CREATOR_ALL_ACL

from broker.config.names import EndpointIdentification
from broker.threads import OutOfThreadsError, start_thread
from broker.tree.node_tree import (
    ROOT,
    BadVersionError,
    Check,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    EphemeralParentError,
    MultiFailedError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Write,
)
from broker.tree.one_shot_watches import Fired

if TYPE_CHECKING:
    from broker.config.loading import Config

RECONNECT_DELAY_MAX_S: Final = 1.0
RESTART_DELAY_S: Final = 1.0
END_S: Final = 1.0
"""How long the end of a session may take."""

_ENDING: Final = "end of a ZooKeeper session"
_log = logging.getLogger(__name__)


class AccessDeniedError(NodeError):
    """The node belongs to other credentials than ours (`zookeeper_digest`)."""


_REFUSALS: Final[dict[type[Exception], tuple[type[NodeError], str]]] = {
    kazoo_errors.NoNodeError: (NoNodeError, "no such node"),
    kazoo_errors.NodeExistsError: (NodeExistsError, "exists already"),
    kazoo_errors.BadVersionError: (BadVersionError, "has another version"),
    kazoo_errors.NotEmptyError: (NotEmptyError, "has children"),
    kazoo_errors.NoChildrenForEphemeralsError: (EphemeralParentError, "its parent is ephemeral"),
    kazoo_errors.NoAuthError: (AccessDeniedError, "ZooKeeper denies access"),
    kazoo_errors.InvalidACLError: (NodeError, "ZooKeeper knows no credentials of ours"),
    kazoo_errors.BadArgumentsError: (NodeError, "ZooKeeper does not take the path"),
    kazoo_errors.QuotaExceededError: (NodeError, "the quota is used up"),
}
"""Server errors that mean nothing was changed. After any other the outcome is unknown."""
_ENDINGS: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.AuthFailedError,
)
"""Errors that mean the connection, or the session, is gone already."""


class Session(NamedTuple):
    """What the server grants."""

    session_id: int
    timeout_s: float


class Listener(NamedTuple):
    """The callbacks to notify, on the event loop."""

    connected: Callable[[Session], None]
    disconnected: Callable[[bool, str], None]
    """Whether the session is lost with the connection, and why. All futures have failed by then."""


class ZooKeeperClient:
    """Requests to `hosts`, in kazoo's connection string; paths are those below its chroot."""

    def __init__(self, hosts: str, config: Config, listener: Listener) -> None:
        servers, slash, chroot = hosts.partition("/")
        self._chroot = slash + chroot
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._unanswered: dict[asyncio.Future[Any], str] = {}
        """Each future with its path."""
        self._is_ending = False
        self._is_short_of_threads = False
        """Whether this was logged, which happens once for each shortage."""
        self._problems = _ProblemLog()
        self._handler = _DirectHandler(config, len(servers.split(",")))
        self._kazoo = _Kazoo(servers, config, self._handler, self._problems, self._thread_ended)
        self._kazoo.add_listener(self._state_changed)

    @property
    def last_problem(self) -> str:
        """Why there is no connection, in kazoo's words."""
        return self._problems.last

    def start(self) -> None:
        """Begins to connect; the listener is notified of the outcome. Raises `OutOfThreadsError`."""
        try:
            self._kazoo.start_async()
        except RuntimeError as error:
            raise OutOfThreadsError("ZooKeeper") from error

    async def end(self) -> None:
        """Ends the session; a server that does not say so within `END_S` does it after the timeout."""
        self._is_ending = True
        ended = asyncio.Event()
        try:
            # A daemon, because kazoo waits for its own thread, however long a name lookup takes.
            start_thread(_ENDING, self._end, ended)
            async with asyncio.timeout(END_S):
                await ended.wait()
        except (OutOfThreadsError, TimeoutError) as error:
            _log.warning(
                "ZooKeeper does not confirm the end of the session within %g s (%s): it lasts until "
                "its timeout",
                END_S,
                self.last_problem if isinstance(error, TimeoutError) else error,
            )
            self.drop_connection()

    def expire_session(self) -> None:
        """Ends the session; a new one begins as after any end of kazoo's thread."""
        try:
            start_thread(_ENDING, self._kazoo.expire)
        except OutOfThreadsError:
            self._loop.call_later(RESTART_DELAY_S, self.expire_session)

    def _end(self, ended: asyncio.Event) -> None:
        self._kazoo.end()
        self._cross(ended.set)

    def drop_connection(self) -> None:
        """Makes kazoo's thread find the connection broken, and open another one."""
        connection = self._handler.connection
        if connection is not None:
            with contextlib.suppress(OSError):
                # Not `SSLSocket.shutdown`, which makes kazoo's thread read the rest as plain text.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    # Requests. The statistics of nodes are kazoo's `ZnodeStat`.

    def get(self, path: str) -> asyncio.Future[tuple[bytes | None, Any]]:
        """Reads the data and the statistics."""
        return self._ask(path, self._kazoo.get_async)

    def exists(self, path: str, fired: Fired) -> asyncio.Future[Any]:
        """Reads the statistics, or None; watches the node."""
        return self._ask(path, self._kazoo.exists_async, watch=self._watcher(fired))

    def children(self, path: str, fired: Fired | None = None) -> asyncio.Future[list[str]]:
        """Reads the names; watches them if the node exists."""
        watch = self._watcher(fired) if fired is not None else None
        return self._ask(path, self._kazoo.get_children_async, watch=watch)

    def create(self, path: str, data: bytes, *, ephemeral: bool) -> asyncio.Future[str]:
        return self._ask(path, self._kazoo.create_async, data, ephemeral=ephemeral)

    def write(self, path: str, data: bytes, version: int) -> asyncio.Future[Any]:
        """Writes the data and returns the new statistics."""
        return self._ask(path, self._kazoo.set_async, data, version)

    def delete(self, path: str, version: int) -> asyncio.Future[bool]:
        return self._ask(path, self._kazoo.delete_async, version)

    def multi(self, operations: Sequence[Operation]) -> asyncio.Future[list[Any]]:
        """Returns a result per operation; `error_in` says what they mean."""
        transaction = self._kazoo.transaction()
        for operation in operations:
            _add(transaction, operation, self._full_path(operation.path))
        return self._ask(ROOT, lambda _: transaction.commit_async())

    def sync(self) -> asyncio.Future[str]:
        """Once answered, this server knows everything that was committed before."""
        return self._ask(ROOT, self._kazoo.sync_async)

    async def create_chroot(self) -> None:
        """Creates the root of this client, and what is missing above it."""
        path = ""
        for name in self._chroot.split("/")[1:]:
            path += "/" + name
            with contextlib.suppress(NodeExistsError):
                await self._ask(ROOT, lambda _, path=path: self._kazoo.create_async(path))

    def _ask(
        self, path: str, send: Callable[..., Any], *args: Any, **options: Any
    ) -> asyncio.Future[Any]:
        answer = self._loop.create_future()
        self._unanswered[answer] = path
        answer.add_done_callback(self._unanswered.pop)
        result = send(self._full_path(path), *args, **options)
        result.rawlink(functools.partial(self._cross, self._answered, answer))
        return answer

    def _full_path(self, path: str) -> str:
        return self._chroot + path if path != ROOT else self._chroot or ROOT

    def _watcher(self, fired: Fired) -> _Watcher:
        return _Watcher(fired, self._cross)

    # What kazoo's thread calls

    def _cross(self, function: Callable[..., None], *args: Any) -> None:
        """Crosses from kazoo's thread to the event loop; if that is closed, no one is left."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            session_id, _ = self._kazoo.client_id
            session = Session(session_id, self._kazoo.session_timeout_ms / 1000)
            self._cross(self._listener.connected, session)
        else:
            self._cross(self._disconnected, state == KazooState.LOST, self.last_problem)

    def _thread_ended(self) -> None:
        self._cross(self._restart_later)

    # On the event loop again

    def _answered(self, answer: asyncio.Future[Any], result: Any) -> None:
        if answer.done():
            return
        if result.exception is None:
            answer.set_result(result.value)
            return
        answer.set_exception(_translated(self._unanswered[answer], result.exception))
        if type(result.exception) not in _REFUSALS and not isinstance(result.exception, _ENDINGS):
            # The connection lives on and something is missing: only a new one makes up for it.
            self.drop_connection()

    def _disconnected(self, is_lost: bool, problem: str) -> None:
        for answer, path in list(self._unanswered.items()):
            if not answer.done():
                answer.set_exception(ConnectionLostError(f"{path}: {problem}"))
        self._listener.disconnected(is_lost, problem)

    def _restart_later(self) -> None:
        if not self._is_ending:
            self._loop.call_later(RESTART_DELAY_S, self._restart)

    def _restart(self) -> None:
        if self._is_ending:
            return
        try:
            self.start()
        except OutOfThreadsError as error:
            if not self._is_short_of_threads:
                _log.warning("no connection to ZooKeeper until there is a thread for it: %s", error)
            self._is_short_of_threads = True
            self._restart_later()
        else:
            self._is_short_of_threads = False


def error_in(operations: Sequence[Operation], results: Sequence[Any]) -> CoordinationError | None:
    """Why a multi-operation failed; None if it did not."""
    for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
        # Those before the failed one were rolled back, those after it were not tried.
        if isinstance(result, Exception) and not isinstance(result, kazoo_errors.RolledBackError):
            cause = _translated(operation.path, result)
            return MultiFailedError(index, cause) if isinstance(cause, NodeError) else cause
    return None


def _translated(path: str, error: Exception) -> CoordinationError:
    refusal, message = _REFUSALS.get(type(error), (None, ""))
    if refusal is not None:
        return refusal(path, message)
    return ConnectionLostError(f"{path}: {error!r}")


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


class _Kazoo(KazooClient):
    """kazoo, set up for us."""

    _connection: _Connection

    def __init__(
        self,
        servers: str,
        config: Config,
        handler: _DirectHandler,
        problems: _ProblemLog,
        thread_ended: Callable[[], None],
    ) -> None:
        self.thread_ended = thread_ended
        # Below WARNING it would show credentials; no one can lower the level of this private
        # logger.
        logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001
        logger.addHandler(problems)
        digest, keystore = config.zookeeper_digest, config.zookeeper_ssl_keystore_location
        algorithm = config.zookeeper_ssl_endpoint_identification_algorithm
        super().__init__(
            hosts=servers,
            timeout=config.zookeeper_session_timeout_ms / 1000,
            handler=handler,
            # kazoo's own delay grows to an hour.
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
    def session_timeout_ms(self) -> int:
        """The timeout the server granted; 0 before the first connection."""
        return self._connection.session_timeout_ms

    def end(self) -> None:
        """Ends the session and the thread, and waits for both."""
        if self.expire():
            self.close()

    def expire(self) -> bool:
        """Ends the session, and waits for the thread; returns whether that went well."""
        try:
            self.stop()
        except Exception:  # noqa: BLE001 - kazoo raises plain ones; the session times out then
            _log.warning("the session with ZooKeeper could not be closed", exc_info=True)
            return False
        return True


class _Connection(ConnectionHandler):
    """kazoo's connection; remembers of the server's first answer what kazoo forgets."""

    session_timeout_ms = 0

    def zk_loop(self) -> None:
        with contextlib.suppress(Exception):  # logged by then, and told as the end of the session
            super().zk_loop()
        self.client.thread_ended()

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

    def __init__(self, config: Config, server_count: int) -> None:
        super().__init__()
        self._connect_timeout_s = config.zookeeper_session_timeout_ms / 1000 / server_count

    def start(self) -> None:
        """Does nothing: it has no threads to start."""

    def stop(self) -> None:
        """Does nothing: it has no threads to stop."""

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **options: Any) -> Any:
        # kazoo would give the whole session timeout to the first server that is out of reach.
        options["timeout"] = self._connect_timeout_s
        self.connection = super().create_connection(*args, **options)
        return self.connection


class _ProblemLog(logging.Handler):
    """What kazoo complains of: the last complaint is the reason that we give; errors are logged."""

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
