"""The coordinator as an ensemble of ZooKeeper servers: one decides, another may lag.

Requests of one connection are executed and answered in order. A session ends when the deciding
server has not heard of it for its timeout, and its client is notified when it reaches a server
again. After an outage every session's timeout starts again.

A client is connected to the deciding server, or to one that may lag (`Behind`): there reads are old
and watches late, but a write is answered when this server has it too, and a client that connects
finds it up to date. And of what that server hears, the last reports may be lost: a session may end
as if the client had fallen silent up to a quarter of its timeout earlier.

The rules of the nodes are `echoless.broker.tree.nodes`, which its own tests prove.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.tree.node_tree import CoordinationError, parent_of
from echoless.broker.tree.nodes import Change, Nodes
from tests.fakes.fake_node_tree import FakeTreeServer
from tests.simulation.network import Channel, Network
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.coordination import SimulatedNodeTree

NODE: Final = "coordinator"
TICK_S: Final = 0.3
"""How much later than possible a session may end."""
REPORT_LAG_MAX: Final = 1 / 4
"""The delay, as a share of the timeout, with which the deciding server is notified of a client."""

Execute = Callable[["Session"], Any]


class Session:
    """The coordinator's knowledge of one client."""

    def __init__(self, session_id: int, timeout_s: float, client: str, report_lag_s: float) -> None:
        self.session_id = session_id
        self.timeout_s = timeout_s
        self.client = client
        self.ended_at: float | None = None
        self.was_cut_short = False
        """It ended before its time: no client can know when."""
        self.connection: TreeConnection | None = None
        self.watched: dict[str, None] = {}
        self._report_lag_s = report_lag_s
        self._heard: deque[float] = deque()
        """When the client was heard of; the first is what the deciding server surely knows."""

    def hear(self, now: float) -> None:
        """The client has sent something."""
        heard = self._heard
        heard.append(now)
        while len(heard) > 1 and heard[1] <= now - self._report_lag_s:
            heard.popleft()

    def begin_anew(self, now: float) -> None:
        """The timeout starts now."""
        self._heard.clear()
        self._heard.append(now)

    @property
    def ends_at(self) -> float:
        """Unless something is heard."""
        return self._heard[0] + self.timeout_s


class Behind:
    """A server that applies what the deciding one has done, `lag_s` later."""

    def __init__(self, process: Process, tell: Callable[[Nodes, Change], None]) -> None:
        self.nodes = Nodes()
        self.lag_s = 0.0
        self._process = process
        self._tell = tell
        self._pending: deque[Change] = deque()

    def receive(self, changes: Sequence[Change]) -> None:
        """Applies them now or later, in order."""
        self._pending.extend(changes)
        if self.lag_s == 0:
            self.catch_up()
        else:
            self._process.later(self.lag_s, self._apply, len(changes))

    def catch_up(self) -> None:
        """Applies everything."""
        self._apply(len(self._pending))

    def _apply(self, count: int) -> None:
        for _ in range(min(count, len(self._pending))):
            self._tell(self.nodes, self._pending.popleft())


class TreeServer(FakeTreeServer):
    """The nodes, the sessions, and the time at which each of them ended."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.sessions: dict[int, Session] = {}
        self.is_down = False
        self.process = Process(network.loop, NODE)
        self.on_change: Callable[[Change], None] = lambda _change: None
        """Sees every change of a node."""
        self.behind = Behind(self.process, self._publish)
        self.network = network
        self._loop = network.loop

    def open_session(self, timeout_s: float, client: str) -> Session:
        lag_s = self.network.rng.random() * REPORT_LAG_MAX * timeout_s
        session = Session(len(self.sessions) + 1, timeout_s, client, lag_s)
        self.sessions[session.session_id] = session
        session.begin_anew(self._loop.time())
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
            self.end_session(session.session_id)

    def go_down(self) -> None:
        """Disconnects everyone; the sessions wait."""
        self.is_down = True
        for session in self.sessions.values():
            if session.connection is not None:
                session.connection.break_off()

    def come_up(self) -> None:
        self.is_down = False
        for session in self.sessions.values():
            session.begin_anew(self._loop.time())

    def copy(self) -> Nodes:
        """A backup of what does not belong to a session."""
        backup = copy.deepcopy(self.nodes)
        for session_id in self.sessions:
            backup.publish([Change(path, None) for path in backup.owned_by(session_id)])
        return backup

    def restore(self, backup: Nodes) -> None:
        """Puts a backup in the place of all data; no session survives."""
        self.go_down()
        for session in self.sessions.values():
            session.was_cut_short = True
            if session.ended_at is None:
                session.ended_at = self._loop.time()
        self.nodes = copy.deepcopy(backup)
        self.behind.catch_up()
        self.behind.nodes = copy.deepcopy(backup)
        self.come_up()

    def execute(
        self, connection: TreeConnection, number: int, request: Execute, *, is_read: bool
    ) -> None:
        """One request of a connection, in order."""
        session = connection.session
        if self.is_down or session is None or session.connection is not connection:
            return
        session.hear(self._loop.time())
        try:
            result = request(session)
        except (CoordinationError, ValueError) as error:  # ValueError: not the path of a node
            result = error
        if not is_read and connection.is_behind:
            self.behind.catch_up()
        connection.down.send(connection.answered, number, result)

    def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self.on_change(change)
            super().apply([change])
        self.behind.receive(changes)

    def _tell(self, nodes: Nodes, path: str, *, came_or_went: bool) -> None:
        """Notifies the clients that are connected to the server with these nodes."""
        is_behind = nodes is self.behind.nodes
        for session in self.sessions.values():
            connection = session.connection
            if connection is None or connection.is_behind is not is_behind:
                continue
            if _concerns(session.watched, path):
                connection.tell(path, came_or_went=came_or_went)

    def _look_after(self, session: Session) -> None:
        """Ends the session when its time is up, not before."""
        if session.ended_at is not None:
            return
        left_s = session.ends_at - self._loop.time()
        if self.is_down:
            self.process.later(TICK_S, self._look_after, session)
        elif left_s > 0:
            self.process.later(max(left_s, 0.01), self._look_after, session)
        else:
            later_s = self.network.rng.random() * TICK_S
            self.process.later(later_s, self._expire_if_silent, session)

    def _expire_if_silent(self, session: Session) -> None:
        is_silent = session.ends_at <= self._loop.time()
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
        self.is_behind = network.rng.random() < 1 / 2
        """Whether it leads to the server that may lag."""
        self.up = Channel(network, client.node, NODE, server.process)
        self.down = Channel(network, NODE, client.node, client.process)

    @property
    def nodes(self) -> Nodes:
        """The nodes that reads over this connection see."""
        server = self.client.server
        return server.behind.nodes if self.is_behind else server.nodes

    # On the server

    def connect(self, session_id: int, timeout_s: float, watched: Iterable[str]) -> None:
        """The first message: resumes a session, or (0) begins one, and sets its watches."""
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
        session.hear(self.client.network.loop.time())
        server.behind.catch_up()
        session.connection = self
        session.watched.update(dict.fromkeys(watched))
        self.session = session
        self.down.send(self.client.accepted, self, session.session_id)

    def execute(self, number: int, request: Execute, is_read: bool) -> None:
        """One request, in order."""
        self.client.server.execute(self, number, request, is_read=is_read)

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
