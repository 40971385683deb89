"""The entrance where new connections wait while more are made than `connection_creation_rate_max` allows.

Eleven seconds' worth are read at once; those beyond that one by one, as the rate allows. Addresses take turns, so that
one that makes thousands of connections does not hold up another. A listener with a rate of its own has an entrance
of its own, which leads to that of the broker.

Invariant: a connection that waits is muted, and one that has left is never unmuted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.network.fair_queue import FairQueue
from echoless.broker.quotas.rate import TokenBucket

if TYPE_CHECKING:
    from echoless.broker.network.connection import Connection
    from echoless.broker.quotas.quotas import Quotas

_LOOK_INTERVAL_S_MAX: Final = 1.0


class _Waiting(NamedTuple):
    address: str
    connection: Connection


class ConnectionRateQuota:
    """The entrance of one broker, or of one of its listeners. Used from one event loop."""

    def __init__(
        self, per_second_max: int, quotas: Quotas, leads_to: ConnectionRateQuota | None = None
    ) -> None:
        self._per_second_max = per_second_max
        self._quotas = quotas
        self.leads_to = leads_to
        """The entrance behind this one."""
        self._bucket: TokenBucket | None = None
        self._waiting: FairQueue[_Waiting] = FairQueue()
        self._timer: asyncio.TimerHandle | None = None

    def set_rate(self, per_second_max: int) -> None:
        """Counts by another rate from now on."""
        self._per_second_max = per_second_max
        if self._bucket is not None:
            self._bucket.limit = per_second_max

    def enter(self, connection: Connection) -> bool:
        """Counts the connection, or mutes it until its turn comes; returns whether it may be read now."""
        if not self._waiting and not self._count_one():
            return self.leads_to is None or self.leads_to.enter(connection)
        connection.mute()
        self._waiting.push(_Waiting(connection.host, connection))
        if self._timer is None:
            self._let_in()
        return False

    def leave(self, connection: Connection) -> None:
        """The connection is lost, whether it waits or not."""
        self._waiting.discard(_Waiting(connection.host, connection))
        if self.leads_to is not None:
            self.leads_to.leave(connection)

    def _count_one(self) -> float:
        """Counts a connection if the rate allows one; returns how many seconds it has to wait if not."""
        now = self._quotas.clock()
        if self._bucket is None:
            self._bucket = TokenBucket(self._per_second_max, now)
        self._bucket.take(1, now)
        wait_s = self._bucket.throttle_ms(now) / 1000
        if wait_s:
            self._bucket.take(-1, now)
        return wait_s

    def _let_in(self) -> None:
        self._timer = None
        while (first := self._waiting.head()) is not None:
            wait_s = min(self._count_one(), _LOOK_INTERVAL_S_MAX)
            if wait_s:
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._let_in)
                return
            self._waiting.serve(first)
            if self.leads_to is None or self.leads_to.enter(first.connection):
                first.connection.unmute()
