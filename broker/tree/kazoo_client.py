"""ZooKeeper requests on one event loop, by kazoo.

kazoo reads the connection in a thread of its own (`kazoo_thread.py`). Everything it reports
(answers, watches, session states) crosses to the event loop in the order of the wire:
`DirectHandler` calls back in that thread, and the callbacks do nothing but `call_soon_threadsafe`.
From there on everything is single-threaded.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kazoo.protocol.states import EventType, KazooState, WatchedEvent

from echoless.broker.threads import OutOfThreadsError, start_thread
from echoless.broker.tree.kazoo_batches import MultiRead, SetWatches
from echoless.broker.tree.kazoo_errors import is_unforeseen, translated
from echoless.broker.tree.kazoo_thread import DirectHandler, Kazoo, ProblemLog
from echoless.broker.tree.node_tree import (
    ROOT,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    Operation,
    SetData,
)
from echoless.broker.tree.one_shot_watches import Fired

if TYPE_CHECKING:
    from echoless.broker.config.loading import Config

RESTART_DELAY_S: Final = 1.0
END_S: Final = 1.0
"""The time that the end of a session may take."""

_ENDING: Final = "end of a ZooKeeper session"
_log = logging.getLogger(__name__)


class GrantedSession(NamedTuple):
    """A session as the server granted it."""

    session_id: int
    timeout_s: float
    asked_at: float
    """By the monotonic clock."""


class ConnectionCallbacks(NamedTuple):
    """The callbacks to notify, on the event loop."""

    connected: Callable[[GrantedSession], None]
    disconnected: Callable[[bool, str], None]
    """Whether the session is lost with the connection, and why. All futures have failed by then."""


class ZooKeeperClient:
    """Requests to `hosts`, in kazoo's connection string; paths are those below its chroot."""

    def __init__(self, hosts: str, config: Config, listener: ConnectionCallbacks) -> None:
        servers, slash, chroot = hosts.partition("/")
        self._chroot = slash + chroot
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._unanswered: dict[asyncio.Future[Any], str] = {}
        """Each future with its path."""
        self._seen_zxid = 0
        """The last transaction that ended connections have seen."""
        self._is_ending = False
        self._is_short_of_threads = False
        """Whether this was logged, which happens once for each shortage."""
        self._problems = ProblemLog()
        self._handler = DirectHandler(config, len(servers.split(",")))
        self._kazoo = Kazoo(servers, config, self._handler, self._problems, self._thread_ended)
        self._kazoo.add_listener(self._state_changed)

    @property
    def last_problem(self) -> str:
        """Why there is no connection, in kazoo's words."""
        return self.old_copy or self._problems.last

    @property
    def old_copy(self) -> str:
        """See `NodeTree`."""
        return self._problems.old_copy

    def is_older_than_seen(self) -> bool:
        """Whether the server, which has just answered a `sync`, is behind what earlier connections have seen.

        Or was, when it refused one of them.
        """
        newest: int = self._kazoo.last_zxid
        if not self.old_copy and newest < self._seen_zxid:
            self._problems.prove_old_copy(
                f"its last transaction is {newest:#x}, and this broker has seen {self._seen_zxid:#x}"
            )
        return bool(self.old_copy)

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

    def get_many(self, paths: Sequence[str]) -> asyncio.Future[list[Any]]:
        """Reads the same of `PATHS_MAX` nodes at most; an exception for each that cannot be read."""
        request = MultiRead([self._full_path(path) for path in paths])
        return self._ask(ROOT, lambda _: self._kazoo.ask(request))

    def set_watches(
        self, watches: Mapping[str, Fired], gone: Collection[str]
    ) -> asyncio.Future[bool]:
        """Watches `PATHS_MAX` nodes at most, some of which should not exist (`gone`).

        A watch of one that is not so fires at once, and is not set.
        """
        watchers = {self._full_path(path): self._watcher(fired) for path, fired in watches.items()}
        request = SetWatches(watchers, frozenset(map(self._full_path, gone)))
        return self._ask(ROOT, lambda _: self._kazoo.ask(request))

    def exists(self, path: str, fired: Fired) -> asyncio.Future[Any]:
        """Reads the statistics, or None; watches the node."""
        return self._ask(path, self._kazoo.exists_async, watch=self._watcher(fired))

    def children(self, path: str, fired: Fired | None = None) -> asyncio.Future[list[str]]:
        """Reads the names; watches them if the node exists."""
        watch = self._watcher(fired) if fired is not None else None
        return self._ask(path, self._kazoo.get_children_async, watch=watch)

    def create(self, path: str, data: bytes, *, ephemeral: bool) -> asyncio.Future[str]:
        return self._ask(path, self._kazoo.create_async, data, ephemeral=ephemeral)

    async def create_sequential(self, prefix: str, data: bytes) -> str:
        """Returns the path of the new node, below the chroot."""
        path: str = await self._ask(prefix, self._kazoo.create_async, data, sequence=True)
        return path.removeprefix(self._chroot)

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
            timeout_s = self._kazoo.session_timeout_ms / 1000
            session = GrantedSession(session_id, timeout_s, self._kazoo.session_asked_at)
            self._cross(self._listener.connected, session)
        else:
            self._seen_zxid = max(self._seen_zxid, self._kazoo.last_zxid)
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
        answer.set_exception(translated(self._unanswered[answer], result.exception))
        if is_unforeseen(result.exception):
            # The connection stays open but an answer is missing: only a new connection can resolve that.
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


def _add(transaction: Any, operation: Operation, full_path: str) -> None:
    match operation:
        case Create(_, data, ephemeral):
            transaction.create(full_path, data, ephemeral=ephemeral)
        case SetData(_, data, version):
            transaction.set_data(full_path, data, version)
        case Delete(_, version):
            transaction.delete(full_path, version)
        case Check(_, version):
            transaction.check(full_path, version)


class _Watcher:
    """A callback for kazoo's watches; equal for the same `fired`, of which kazoo keeps one."""

    def __init__(self, fired: Fired, cross: Callable[..., None]) -> None:
        self._fired = fired
        self._cross = cross

    def __call__(self, event: WatchedEvent) -> None:
        # At the end of a connection kazoo fires everything as NONE; we have heard of that.
        if event.type != EventType.NONE:
            self._cross(self._fired, event.type == EventType.DELETED)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watcher) and self._fired is other._fired

    def __hash__(self) -> int:
        return hash(self._fired)
