"""kazoo as a broker needs it: settings, and what differs in the thread that reads the connection.

* Callbacks run in that thread, in the order of the wire (`DirectHandler`).
* The end of the thread is reported, since kazoo does not start it again.
* The granted session timeout and the last problem are kept.
* A server whose data is older than what this client has seen is recognised. It closes each connection without an
  answer, as a server does that is starting, and kazoo would try for ever.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, KazooException, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, Connect, Sync
from kazoo.protocol.states import Callback
from kazoo.security import CREATOR_ALL_ACL

from echoless.broker.config.security import EndpointIdentification
from echoless.broker.tree.kazoo_batches import MultiRead, SetWatches

if TYPE_CHECKING:
    from echoless.broker.config.loading import Config

RECONNECT_DELAY_MAX_S: Final = 1.0
CONNECT_SHARE: Final = 1 / 3
"""Share of the session timeout that the answer to a connection may take, if it is more than `CONNECT_S_MIN`.

kazoo, as ZooKeeper's own client, gives a single server all of it. But a ZooKeeper that is being started may accept a
connection, fail to refuse it ("ZooKeeperServer not running", then a NullPointerException) and leave it open for ever.
"""
CONNECT_S_MIN: Final = 2.0
_log = logging.getLogger(__name__)


class Kazoo(KazooClient):
    """kazoo's client, with a broker's settings."""

    _connection: _Connection

    def __init__(
        self,
        servers: str,
        config: Config,
        handler: DirectHandler,
        problems: ProblemLog,
        thread_ended: Callable[[], None],
    ) -> None:
        self.thread_ended = thread_ended
        self.problems = problems
        # Below WARNING it would show credentials; no one can lower the level of this private logger.
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

    @property
    def session_asked_at(self) -> float:
        """When the present session was asked for, by the monotonic clock."""
        return self._connection.session_asked_at

    def ask(self, request: MultiRead | SetWatches) -> Any:
        """Sends a request that kazoo does not have; returns kazoo's result of it, to come."""
        result = self.handler.async_result()
        self._call(request, result)
        return result

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
    """kazoo's connection; keeps the granted session timeout, and when the session was asked for."""

    session_timeout_ms = 0
    session_asked_at = 0.0
    """By the monotonic clock."""
    _is_refused = False
    """Whether the server has just closed the connection instead of granting the session."""

    def zk_loop(self) -> None:
        with contextlib.suppress(
            Exception
        ):  # logged by then, and reported as the end of the session
            super().zk_loop()
        self.client.thread_ended()

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        if isinstance(request, SetWatches):
            # In the thread that hands out events, which takes watchers out of there.
            for path, watcher in request.watchers.items():
                self.client._data_watchers[path].add(watcher)  # noqa: SLF001
        super()._submit(request, timeout, xid)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        """Raises `SessionExpiredError` also if this session can never go on, because the server's data is older."""
        self._is_refused = False
        try:
            return super()._connect(host, hostip, port)
        except ConnectionDropped:
            if self._is_refused and self.client.last_zxid:
                self._refuse_an_old_server(host, hostip, port)
            raise

    def _refuse_an_old_server(self, host: str, hostip: str, port: int) -> None:
        seen, newest = self.client.last_zxid, self._newest_transaction(host, hostip, port)
        if newest is None or newest >= seen:
            return  # it is starting, or lags behind the rest of its ensemble
        if newest:
            self.client.problems.prove_old_copy(
                f"{host}:{port} refuses the session: its last transaction is {newest:#x}, and this broker has "
                f"seen {seen:#x}"
            )
        raise SessionExpiredError

    def _newest_transaction(self, host: str, hostip: str, port: int) -> int | None:
        """The last transaction of the server's ensemble; 0 if the session has ended, None without an answer.

        Asked for in the same session, as if this client had seen nothing: a session of its own would be another
        transaction. If the answer is that the server is behind, the session has been closed.
        """
        client, timeout_s = self.client, CONNECT_S_MIN
        try:
            with self._socket_error_handling():
                if self._socket is not None:
                    self._socket.close()
                self._socket = self.handler.create_connection(
                    address=(hostip, port),
                    hostname=host,
                    timeout=timeout_s,
                    use_ssl=client.use_ssl,
                    keyfile=client.keyfile,
                    certfile=client.certfile,
                    ca=client.ca,
                    keyfile_password=client.keyfile_password,
                    verify_certs=client.verify_certs,
                    check_hostname=client.check_hostname,
                )
            self._socket.setblocking(0)
            timeout_ms, password = client._session_timeout, client._session_passwd  # noqa: SLF001
            session_id = client._session_id or 0  # noqa: SLF001
            ask = Connect(0, 0, timeout_ms, session_id, password, False)
            granted, _ = super()._invoke(timeout_s, ask)
            if granted.time_out <= 0:
                return 0
            # Behind the sync this server has what its ensemble's leader had when it was asked.
            newest: int | None = super()._invoke(timeout_s, Sync("/"), xid=1)
            if newest is not None and newest < client.last_zxid:
                self._submit(CloseInstance, timeout_s, 2)
                self._read_header(timeout_s)
        except (ConnectionDropped, KazooException, self.handler.timeout_exception):
            return None
        return newest

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        asked_at = time.monotonic()
        if isinstance(request, Connect):
            timeout = min(timeout, max(CONNECT_S_MIN, CONNECT_SHARE * request.time_out / 1000))
        try:
            answer = super()._invoke(timeout, request, xid)
        except ConnectionDropped:
            self._is_refused = isinstance(request, Connect)
            raise
        if isinstance(request, Connect):
            self.session_timeout_ms = answer[0].time_out
            if not request.session_id:
                self.session_asked_at = asked_at
        return answer


class DirectHandler(SequentialThreadingHandler):
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


class ProblemLog(logging.Handler):
    """kazoo's log lines: the last one is the reason that we give; errors are logged."""

    last = "no server answers"
    old_copy = ""
    """See `NodeTree`."""

    def prove_old_copy(self, proof: str) -> None:
        """Notes, for good, and logs that a server holds an older copy of the tree."""
        self.old_copy = f"the coordinator's data is an old copy, or another ensemble's: {proof}"
        _log.error("%s", self.old_copy)

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            _log.error("kazoo: %s", record.getMessage(), exc_info=record.exc_info)
        if record.msg != "Transition to CONNECTING":
            self.last = record.getMessage()
