"""The entrance where new Kafka connections wait while more are made than `connection_creation_rate_max` allows.

Eleven seconds' worth are read at once; those beyond that one by one, as the rate allows. Addresses take turns, so that
one that makes thousands of connections does not hold up another.

Invariant: a connection that waits is muted, and one that has left is never unmuted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from broker.network.fair_queue import FairQueue
from broker.quotas.rate import TokenBucket
from protocol.lean_named_tuple import NamedTuple

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.quotas.quotas import Quotas

_LOOK_INTERVAL_S_MAX: Final = 1.0


class _Waiting(NamedTuple):
    address: str
    connection: Connection


class Entrance:
    """The entrance of one broker, to all its ports but the native one. Used from one event loop."""

    def __init__(self, per_second_max: int, quotas: Quotas) -> None:
        self._per_second_max = per_second_max
        self._quotas = quotas
        self._bucket: TokenBucket | None = None
        self._waiting: FairQueue[_Waiting] = FairQueue()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: Connection) -> None:
        """Counts the connection, or mutes it until its turn comes."""
        if not self._waiting and not self._count_one():
            return
        connection.mute()
        self._waiting.push(_Waiting(connection.host, connection))
        if self._timer is None:
            self._let_in()

    def leave(self, connection: Connection) -> None:
        """The connection is lost, whether it waits or not."""
        self._waiting.discard(_Waiting(connection.host, connection))

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
            first.connection.unmute()
