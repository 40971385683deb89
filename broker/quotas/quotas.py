"""The quotas in force, and how much of them has been used on this broker.

Read from the tree at the start, after each announced change and once a minute: an announcement may be lost. While the
coordinator cannot be reached, the quotas that were read last stay in force, as in Kafka. `limits` is None while there
are no quotas at all, and a request then pays nothing but a look at it.

Invariant: a change of quotas that was made here is in force here before its client learns of its success.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.metadata.config_nodes import CHANGES, sanitized
from echoless.broker.network.sharer import network_of, sharer_of
from echoless.broker.quotas.measures import Measures
from echoless.broker.quotas.quota import Limit, Limits, QuotaKey, address_limit_of, limit_of
from echoless.broker.quotas.quota_nodes import read_quotas
from echoless.broker.quotas.rate import SAMPLE_S, Rate, TokenBucket
from echoless.broker.tree.refresher import Refresher

if TYPE_CHECKING:
    from collections.abc import Callable

    from echoless.broker.metrics import Metrics
    from echoless.broker.network.request import Peer
    from echoless.broker.tree.node_tree import Cancel, NodeTree

READ_INTERVAL_S: Final = 60.0
"""The longest time for which a lost announcement can go unnoticed."""
METERS_MAX: Final = 10_000
"""Clients whose measures need no search."""
_USER: Final = "User:"
_PER_CENT: Final = 100
_REQUEST_PAUSE_MS_MAX: Final = int(SAMPLE_S * 1000)
"""The longest pause for request time, as in Kafka."""


class _Others(NamedTuple):
    """Client ids of a sharer that has begun so many measures that these share one."""

    sharer: str


_Counted = tuple[QuotaKey, str, str | _Others]


class Meters(NamedTuple):
    """The measures of one client; None where it has no quota."""

    produced: Rate | None
    fetched: Rate | None
    request_time: Rate | None
    mutations: TokenBucket | None
    new_ids: TokenBucket | None
    """Producer ids that a partition did not know."""


class Quotas:
    """The quotas of one broker. Used from one event loop, from `start` to `close`."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits: Limits | None = None
        self.metrics = metrics
        self.clock = clock
        """Seconds that only grow."""
        self._meters: dict[tuple[str, str], Meters] = {}
        """By principal and client id; forgotten when a quota changes, or a measure is."""
        self._rates: Measures[Rate] = Measures()
        self._buckets: Measures[TokenBucket] = Measures()
        self._with_new_id: TokenBucket | None = None
        """The bucket of a client that has just brought a new producer id: the request in hand, or its next one, pauses."""
        self._reading = asyncio.Lock()
        self._refresher: Refresher | None = None
        self._cancel: Cancel | None = None

    async def start(self, tree: NodeTree, *, is_shared: bool) -> None:
        """Reads all quotas; follows them if others can change the tree. Raises `CoordinationError`."""
        self._tree = tree
        if is_shared:
            self._refresher = Refresher("quotas", self.refresh, every_s=READ_INTERVAL_S)
            self._cancel = await tree.watch_children(CHANGES, lambda _: self._ask())
            self._refresher.start()
        await self.refresh()

    async def close(self) -> None:
        """Stops following."""
        if self._cancel is not None:
            self._cancel()
        if self._refresher is not None:
            await self._refresher.close()

    async def refresh(self) -> None:
        """Brings the quotas up to date now. Raises `CoordinationError`."""
        async with self._reading:  # else a round that has read before it could end after this one
            self._set(await read_quotas(self._tree))

    def _set(self, limits: Limits) -> None:
        if limits != (self.limits or {}):
            self.limits = limits or None
            self._meters.clear()

    def _ask(self) -> None:
        if self._refresher is not None:
            self._refresher.ask()

    def meters(self, peer: Peer, client_id: str | None) -> Meters:
        """The measures that the client's uses are counted in."""
        key = peer.principal, client_id or ""
        return self._meters.get(key) or self._new_meters(*key, sharer_of(peer))

    def count_new_id(self, peer: Peer, client_id: str | None) -> None:
        """Counts a producer id whose first batch a partition has stored."""
        new_ids = self.meters(peer, client_id).new_ids
        if new_ids is not None:
            new_ids.take(1, self.clock())
            self._with_new_id = new_ids

    def used(
        self, peer: Peer, meters: Meters, produced_bytes: int | None, took_s: float | None
    ) -> int:
        """Counts what a request has used, pauses the connection if that is too much, and says for how long.

        None: the request does not use this.
        """
        now, pause_ms = self.clock(), 0
        if meters.produced is not None and produced_bytes is not None:
            pause_ms = meters.produced.record(produced_bytes, now)
        new_ids = meters.new_ids
        if new_ids is not None and new_ids is self._with_new_id:
            self._with_new_id = None
            pause_ms = max(pause_ms, new_ids.throttle_ms(now))
        if meters.request_time is not None and took_s is not None:
            of_time_ms = meters.request_time.record(took_s * _PER_CENT, now)
            pause_ms = max(pause_ms, min(of_time_ms, _REQUEST_PAUSE_MS_MAX))
        if pause_ms:
            self.pause(peer, pause_ms)
        return pause_ms

    def pause(self, peer: Peer, pause_ms: int) -> None:
        """Reads nothing from the client's connection for so long."""
        self.metrics.throttled_requests_total += 1
        self.metrics.throttled_ms_total += pause_ms
        if peer.pause is not None:
            peer.pause(pause_ms / 1000)

    def address_rate(self, host: str) -> Rate | None:
        """The connections that the address makes; None: it may make any number."""
        limit = address_limit_of(self.limits or {}, sanitized(host))
        if limit is None:
            return None
        self._sweep()
        any_address = Limit(limit, "", host, is_of_any_client=True)
        counted = _counted(
            self._rates, QuotaKey.CONNECTION_CREATION_RATE, any_address, network_of(host)
        )
        return self._rate_of(counted, limit, network_of(host))

    def _new_meters(self, principal: str, client_id: str, sharer: str) -> Meters:
        """The measures of a client, remembered unless its sharer has more than its share."""
        self._sweep()
        who = sanitized(principal.removeprefix(_USER)), sanitized(client_id), sharer
        meters = Meters(
            self._rate(QuotaKey.PRODUCER_BYTE_RATE, *who),
            self._rate(QuotaKey.CONSUMER_BYTE_RATE, *who),
            self._rate(QuotaKey.REQUEST_PERCENTAGE, *who),
            self._bucket(QuotaKey.CONTROLLER_MUTATION_RATE, *who),
            self._bucket(QuotaKey.PRODUCER_IDS_RATE, *who),
        )
        if self._rates.has_room_for(sharer) and self._buckets.has_room_for(sharer):
            self._meters[principal, client_id] = meters
        return meters

    def _sweep(self) -> None:
        """Forgets some measures that say no more than new ones would, and clients if there are many."""
        now = self.clock()
        are_swept = self._rates.sweep(now), self._buckets.sweep(now)
        if any(are_swept) or len(self._meters) >= METERS_MAX:
            self._meters.clear()

    def _rate(self, key: QuotaKey, user: str, client_id: str, sharer: str) -> Rate | None:
        limit = limit_of(self.limits or {}, key, user, client_id)
        if limit is None:
            return None
        return self._rate_of(_counted(self._rates, key, limit, sharer), limit.value, sharer)

    def _rate_of(self, counted: _Counted, limit: float, sharer: str) -> Rate:
        rate = self._rates.find(counted)
        if rate is None:
            rate = Rate(limit)
            self._rates.begin(counted, sharer, rate)
        rate.limit = limit
        return rate

    def _bucket(self, key: QuotaKey, user: str, client_id: str, sharer: str) -> TokenBucket | None:
        limit = limit_of(self.limits or {}, key, user, client_id)
        if limit is None:
            return None
        counted = _counted(self._buckets, key, limit, sharer)
        bucket = self._buckets.find(counted)
        if bucket is None:
            bucket = TokenBucket(limit.value, self.clock())
            self._buckets.begin(counted, sharer, bucket)
        bucket.limit = limit.value
        return bucket


def _counted(measures: Measures[Any], key: QuotaKey, limit: Limit, sharer: str) -> _Counted:
    """The measure that the client's use is counted in, by its name."""
    own = key, limit.user, limit.client_id
    if limit.is_of_any_client and measures.find(own) is None and not measures.has_room_for(sharer):
        return key, limit.user, _Others(sharer)
    return own
