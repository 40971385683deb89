"""The quotas in force, and how much of them has been used on this broker.

Read from the tree at the start, after each announced change and once a minute: an announcement may be lost. While the
coordinator cannot be reached, the quotas that were read last stay in force, as in Kafka. `limits` is None while there
are no quotas at all, and a request then pays nothing but a look at it.

Invariant: a change of quotas that was made here is in force here before its client learns of its success.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.essential_task import essential_task
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metadata.config_nodes import CHANGES, sanitized
from echoless.broker.quotas.quota import Limits, QuotaKey, address_limit_of, limit_of
from echoless.broker.quotas.quota_nodes import read_quotas
from echoless.broker.quotas.rate import SAMPLE_S, Rate, TokenBucket
from echoless.broker.tree.refresher import Refresher

if TYPE_CHECKING:
    from collections.abc import Callable

    from echoless.broker.metrics import Metrics
    from echoless.broker.network.request import Peer
    from echoless.broker.tree.node_tree import Cancel, NodeTree

limited: Final = LimitedLog(logging.getLogger(__name__))

READ_INTERVAL_S: Final = 60.0
"""The longest time for which a lost announcement can go unnoticed."""
METERS_MAX: Final = 10_000
"""Clients whose uses are remembered: client ids are chosen by clients."""
_RATES: Final = 3
_BUCKETS: Final = 2
"""Rates, and buckets, that a client can have."""
_USER: Final = "User:"
_PER_CENT: Final = 100
_REQUEST_PAUSE_MS_MAX: Final = int(SAMPLE_S * 1000)
"""The longest pause for request time, as in Kafka."""
_Counted = tuple[QuotaKey, str, str]


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
        """By principal and client id; forgotten when a quota changes."""
        self._rates: dict[_Counted, Rate] = {}
        self._buckets: dict[_Counted, TokenBucket] = {}
        self._with_new_id: TokenBucket | None = None
        """The bucket of a client that has just brought a new producer id: the request in hand, or its next one, pauses."""
        self._reading = asyncio.Lock()
        self._refresher: Refresher | None = None
        self._cancel: Cancel | None = None
        self._timer: asyncio.Task[None] | None = None

    async def start(self, tree: NodeTree, *, is_shared: bool) -> None:
        """Reads all quotas; follows them if others can change the tree. Raises `CoordinationError`."""
        self._tree = tree
        if is_shared:
            self._refresher = Refresher("quotas", self.refresh)
            self._cancel = await tree.watch_children(CHANGES, lambda _: self._ask())
            self._timer = essential_task(self._ask_regularly(), "regular reading of quotas")
            self._refresher.start()
        await self.refresh()

    async def close(self) -> None:
        """Stops following."""
        if self._timer is not None:
            self._timer.cancel()
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

    async def _ask_regularly(self) -> None:
        while True:
            await asyncio.sleep(READ_INTERVAL_S)
            self._ask()

    def meters(self, peer: Peer, client_id: str | None) -> Meters:
        """The measures that the client's uses are counted in."""
        key = peer.principal, client_id or ""
        meters = self._meters.get(key)
        if meters is None:
            if self._is_full:
                self._forget_unused()
            meters = self._meters[key] = self._new_meters(*key)
        return meters

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
        counted = QuotaKey.CONNECTION_CREATION_RATE, "", host
        if counted not in self._rates and len(self._rates) >= METERS_MAX:
            self._forget_unused()
        rate = self._rates.setdefault(counted, Rate(limit))
        rate.limit = limit
        return rate

    def _new_meters(self, principal: str, client_id: str) -> Meters:
        who = sanitized(principal.removeprefix(_USER)), sanitized(client_id)
        return Meters(
            self._rate(QuotaKey.PRODUCER_BYTE_RATE, *who),
            self._rate(QuotaKey.CONSUMER_BYTE_RATE, *who),
            self._rate(QuotaKey.REQUEST_PERCENTAGE, *who),
            self._bucket(QuotaKey.CONTROLLER_MUTATION_RATE, *who),
            self._bucket(QuotaKey.PRODUCER_IDS_RATE, *who),
        )

    def _rate(self, key: QuotaKey, user: str, client_id: str) -> Rate | None:
        limit = limit_of(self.limits or {}, key, user, client_id)
        if limit is None:
            return None
        counted = key, limit.user, limit.client_id
        rate = self._rates.setdefault(counted, Rate(limit.value))
        rate.limit = limit.value
        return rate

    def _bucket(self, key: QuotaKey, user: str, client_id: str) -> TokenBucket | None:
        limit = limit_of(self.limits or {}, key, user, client_id)
        if limit is None:
            return None
        counted = key, limit.user, limit.client_id
        bucket = self._buckets.get(counted)
        if bucket is None:
            bucket = self._buckets[counted] = TokenBucket(limit.value, self.clock())
        bucket.limit = limit.value
        return bucket

    @property
    def _is_full(self) -> bool:
        """Whether there are as many measures as `METERS_MAX` clients can have, of clients since forgotten as well."""
        used_max = max(len(self._rates) // _RATES, len(self._buckets) // _BUCKETS)
        return max(len(self._meters), used_max) >= METERS_MAX

    def _forget_unused(self) -> None:
        """Forgets what says no more than a new measure would; all of it if that is not enough."""
        now = self.clock()
        self._meters.clear()
        self._rates = {one: rate for one, rate in self._rates.items() if not rate.is_unused(now)}
        self._buckets = {
            one: bucket for one, bucket in self._buckets.items() if not bucket.is_unused(now)
        }
        if max(len(self._rates), len(self._buckets)) > METERS_MAX // 2:
            message = (
                "%d clients and addresses have quotas of their own: forgetting what they have used"
            )
            limited.log(logging.WARNING, "", message, len(self._rates) + len(self._buckets))
            self._rates.clear()
            self._buckets.clear()
