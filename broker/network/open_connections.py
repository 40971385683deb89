"""The open connections, by client address, and which of them give way to which.

At the connection limit, a newcomer is not refused on account of an address that holds most of them: if
that address has at least twice as many as the newcomer's would have, one of its idle connections is
closed instead. So an address can fill the broker only as long as no other address connects.

Shared by the Kafka and native ports of a broker. Single owner: the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol, cast

from echoless.broker.network.connection import Connection

IDLE_S: Final = 1.0
"""A connection gives way once it has been silent for this long."""
_LOOKED_AT_MAX: Final = 1000
"""Number of the oldest connections that are considered when one has to give way."""


class Open(Protocol):
    """A connection, or one whose TLS handshake is in progress."""

    @property
    def host(self) -> str: ...

    @property
    def must_log_in(self) -> bool: ...

    def is_idle_since(self, moment: float) -> bool: ...

    def give_up(self, reason: str) -> None: ...


class OpenConnections:
    """All connections of one broker, or of one of its ports."""

    def __init__(self) -> None:
        self._by_host: dict[str, dict[Open, None]] = {}
        self._strangers: dict[str, set[Open]] = {}
        """Connections whose clients have not logged in yet, and TLS handshakes, by client address."""
        self.total = 0
        """Number of open connections."""

    def count(self, host: str) -> int:
        """Number of connections of the address."""
        return len(self._by_host.get(host, ()))

    def connections(self) -> Iterator[Connection]:
        """The connections as they are now, without TLS handshakes; by address, the oldest of each first."""
        for opened in list(self._by_host.values()):
            yield from (one for one in list(opened) if isinstance(one, Connection))

    def strangers(self, host: str) -> int:
        """Number of connections of the address that have to log in, or to finish their TLS handshake."""
        return len(self._strangers.get(host, ()))

    def add(self, connection: Open) -> None:
        self._by_host.setdefault(connection.host, {})[connection] = None
        self.total += 1
        if connection.must_log_in:
            self._strangers.setdefault(connection.host, set()).add(connection)

    def admitted(self, connection: Open) -> None:
        """Counts it as a stranger's no longer."""
        strangers = self._strangers.get(connection.host)
        if strangers is not None:
            strangers.discard(connection)
            if not strangers:
                del self._strangers[connection.host]

    def discard(self, connection: Open) -> None:
        self.admitted(connection)
        connections = self._by_host.get(connection.host)
        if connections is not None and connection in connections:
            del connections[connection]
            self.total -= 1
            if not connections:
                del self._by_host[connection.host]

    def make_room_for(self, host: str) -> bool:
        """Closes a connection in favour of a new one from `host`, if that is fair."""
        if not self._by_host:
            return False
        largest, connections = max(self._by_host.items(), key=lambda item: len(item[1]))
        if len(connections) < 2 * (self.count(host) + 1):
            return False
        moment = time.monotonic() - IDLE_S
        for one in islice(connections, _LOOKED_AT_MAX):
            if one.is_idle_since(moment):
                one.give_up(
                    f"silent, and {largest} has {len(connections)} of the connections that there "
                    f"may be: another address needs one"
                )
                self.discard(one)
                return True
        return False


class PortConnections(set["Connection"]):
    """The connections of one port, which are also entered among others."""

    def __init__(self, *entered: OpenConnections) -> None:
        super().__init__()
        self._entered = entered

    def add(self, connection: Connection) -> None:
        super().add(connection)
        for one in self._entered:
            one.add(connection)

    def discard(self, connection: object) -> None:
        super().discard(connection)
        for one in self._entered:
            one.discard(cast("Connection", connection))
