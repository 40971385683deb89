"""A request of a broker that has quotas: its use is counted, and a client that has used too much has to pause.

As in Kafka since 2.0, the answer leaves at once and says for how long, and the connection is not read for that time.
Produced records are counted when they have been processed, whatever became of them. A fetch by a client that has
already used too much is answered with nothing and not counted; what any other takes is counted afterwards, even if it is
too much. The largest of the pauses counts. The native port does the same (`native/metered.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from echoless.broker.handlers import fetch, produce
from echoless.broker.handlers.mutations import REFUSED_SINCE, mutation_pause_ms
from echoless.broker.handlers.session_requests import fetched_nothing
from echoless.broker.handlers.throttle_time import size_of, throttled
from echoless.broker.network.request import Answer, Outcome, Request, needing_as_much
from echoless.broker.records.in_flight import ACKS_NONE

if TYPE_CHECKING:
    from echoless.broker.handlers.served import Served
    from echoless.broker.quotas.quotas import Meters, Quotas
    from echoless.broker.quotas.rate import Rate
    from echoless.broker.services import Services


def metered(
    served: Served,
    request: Request,
    services: Services,
    permitted: Callable[[Served, Request, Services], Outcome],
) -> Outcome:
    """Has the request processed by `permitted`, and counts it."""
    quotas = services.quotas
    meters = quotas.meters(request.peer, request.client_id)
    if served.api is fetch.API and meters.fetched is not None:
        pause_ms = meters.fetched.throttle_ms(quotas.clock())
        if pause_ms:
            return _fetched_nothing(request, services, pause_ms)
        within = _within(meters.fetched, request.body)
        request = replace(request, body=within)
    is_produce = served.api is produce.API
    is_timed = not (is_produce and request.body.acks == ACKS_NONE)
    began_at = perf_counter()
    outcome = permitted(served, request, services)
    took_s = perf_counter() - began_at if is_timed else None
    produced_bytes = _produced_bytes(request.body) if is_produce else None
    pause_ms = quotas.used(request.peer, meters, produced_bytes, took_s)
    use = _Use(served, request, pause_ms, quotas)
    if isinstance(outcome, bytes) or not isinstance(outcome, Awaitable):
        return use.counted(outcome)
    return needing_as_much(outcome, use.counted_later(outcome))


def _fetched_nothing(request: Request, services: Services, pause_ms: int) -> Outcome:
    services.quotas.pause(request.peer, pause_ms)
    nothing = fetched_nothing(request, services)
    if isinstance(nothing, bytes) or not isinstance(nothing, Awaitable):
        return throttled(fetch.API, request.version, nothing, pause_ms)
    return _throttled_later(request, nothing, pause_ms)


async def _throttled_later(request: Request, nothing: Awaitable[Answer], pause_ms: int) -> Answer:
    return throttled(fetch.API, request.version, await nothing, pause_ms)


def _within(rate: Rate, body: Any) -> Any:
    """The fetch, for no more than ten seconds' worth; the first batch is whole even then."""
    most = rate.most_at_once
    return body._replace(bytes_max=min(body.bytes_max, most), min_bytes=min(body.min_bytes, most))


def _produced_bytes(body: Any) -> int:
    return sum(len(one.records or b"") for topic in body.topics for one in topic.partitions)


class _Use(NamedTuple):
    """A request that has been given to its handler."""

    served: Served
    request: Request
    pause_ms: int
    quotas: Quotas

    @property
    def meters(self) -> Meters:
        """The measures of the client now: those of the request's beginning may have been forgotten as unused."""
        return self.quotas.meters(self.request.peer, self.request.client_id)

    def counted(self, answer: Answer) -> Answer:
        """The answer as it leaves; what a fetch took is counted."""
        api, pause_ms, now = self.served.api, self.pause_ms, self.quotas.clock()
        if api is fetch.API and (fetched := self.meters.fetched) is not None:
            fetched.record(size_of(answer), now)
        elif api.key in REFUSED_SINCE and (mutations := self.meters.mutations) is not None:
            of_changes_ms = mutation_pause_ms(self.request, answer, mutations, now)
            if of_changes_ms > pause_ms:
                pause_ms = of_changes_ms
                self.quotas.pause(self.request.peer, pause_ms)
        return throttled(api, self.request.version, answer, pause_ms) if pause_ms else answer

    async def counted_later(self, outcome: Awaitable[Answer]) -> Answer:
        return self.counted(await outcome)
