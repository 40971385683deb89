"""One port with rules: which rule acts on a request, and which connections ask at all.

While there are rules for requests, every connection of the port has a `FaultyDispatcher`; without
them each has the port's own dispatcher, and nothing in this file runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from echoless.broker.faults.coordinated import CoordinatedStates
from echoless.broker.faults.hits import Hits
from echoless.broker.faults.match import Part
from echoless.broker.faults.request_actions import Hit, RequestActions
from echoless.broker.faults.requests import (
    Dispatch,
    DividedRequest,
    ReadRequest,
    Requests,
    finished,
)
from echoless.broker.faults.rule import ActiveRule
from echoless.broker.faults.rule_index import RulesByApi
from echoless.broker.faults.served import NEED_NO_RIGHT
from echoless.broker.faults.unexpected import report_unexpected
from echoless.broker.network.answers import Buffers
from echoless.broker.network.connection import Connection
from echoless.broker.network.order import LanePlace
from echoless.broker.network.reading import Dispatched
from echoless.broker.network.request import Peer
from echoless.broker.network.turns import for_client, work_in_turns
from echoless.protocol.framing import Frame

_CUT: Final = "cut_replica_link"
_FREEZE: Final = "freeze"
_HOLD: Final = "hold_request"
_PARTIAL: Final = frozenset({"error", "error_after", "deny"})
"""Actions that leave the partitions alone that do not match; all others take the whole request."""
_COMPARED_AT_ONCE: Final = 2000
"""Partitions times rules that are compared in one go, in about two milliseconds."""


class RequestPlan(NamedTuple):
    """The plan for one request."""

    process: Callable[[], Dispatched]
    wait: Callable[[], Awaitable[object]] | None = None
    """Waits for the event that the request has to await."""


@dataclass(slots=True)
class _Matched:
    """The rules that a request has met."""

    hit: Hit | None = None
    """The one that acts."""
    if_answered: list[Hit] = field(default_factory=list)
    """The ones that act if the answer is what they want, and no other one does."""


class Dispatching(Protocol):
    """The part of a `Server` that is touched here."""

    dispatch: Dispatch
    route: Callable[[Connection], Dispatch] | None

    @property
    def connections(self) -> Iterable[Connection]: ...


class FaultyPort:
    """One server, its own dispatcher, and the rules in front of it."""

    def __init__(
        self,
        server: Dispatching,
        requests: Requests,
        hits: Hits,
        actions: RequestActions,
        coordinated: CoordinatedStates,
    ) -> None:
        self._coordinated = coordinated
        self._server = server
        self._inner = server.dispatch
        self._requests = requests
        self._hits = hits
        self._actions = actions
        self._rules = RulesByApi()
        self._tasks: dict[asyncio.Future[Buffers | None], None] = {}

    # --- with rules, or without ---

    def use(self, rules: Sequence[ActiveRule]) -> None:
        """Acts on these rules from now on; with none, requests go past this file again."""
        self._rules = RulesByApi(rules)
        self._actions.forget_all_but(rules)
        self._server.route = self._route if rules else None
        for connection in self._server.connections:
            self.settle(connection)

    def settle(self, connection: Connection) -> None:
        """Gives the connection the dispatcher that it should have now."""
        now = connection.dispatch
        if not isinstance(now, FaultyDispatcher):
            if self._rules.all:
                connection.dispatch = self._route(connection)
        elif not self._rules.all and not now.is_waiting:
            connection.dispatch = self._inner

    def _route(self, connection: Connection) -> Dispatch:
        return FaultyDispatcher(connection, self)

    def keep(self, task: asyncio.Future[Buffers | None]) -> None:
        """Remembers what goes on without its client, until it is done."""
        self._tasks[task] = None
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Future[Buffers | None]) -> None:
        self._tasks.pop(task, None)
        report_unexpected(task)

    def stop(self) -> None:
        """Lets nothing hold back an answer, or the end of a connection, any longer."""
        for task in list(self._tasks):
            task.cancel()
        self._actions.stop()

    # --- one request ---

    def concerns(self, frame: Frame) -> bool:
        """Whether there is a rule for requests of this API; those of others pass untouched."""
        api = self._requests.api_of(frame)
        return bool(self._rules.all if api is None else self._rules.of(api))

    def pass_on(self, frame: Frame, peer: Peer) -> Dispatched:
        """Has the port's own dispatcher process the request."""
        return self._inner(frame, peer)

    def takes_long(self, frame: Frame, peer: Peer) -> bool:
        """Whether reading the request would hold the event loop."""
        return _is_admitted(peer) and self._requests.takes_long(frame)

    def read(self, frame: Frame, peer: Peer) -> ReadRequest | None:
        """The request, unless the port itself is to report what is wrong with it."""
        return self._requests.read(frame, peer) if _is_admitted(peer) else None

    def is_long_to_match(self, request: ReadRequest | None) -> bool:
        """Whether comparing the request with all rules would hold the event loop."""
        if request is None:
            return False
        facts = request.facts
        return len(facts.parts) * len(self._rules.of(facts.api)) > _COMPARED_AT_ONCE

    async def read_and_plan(self, frame: Frame, peer: Peer) -> RequestPlan:
        """Like `read` and `plan`, for a request that may have to be read in a thread."""
        read = partial(self._requests.read, frame, peer)
        if self.takes_long(frame, peer):
            request = await for_client(peer.host, read)
        else:
            request = self.read(frame, peer)
        return await self.plan_in_turns(request, frame, peer)

    async def plan_in_turns(
        self, request: ReadRequest | None, frame: Frame, peer: Peer
    ) -> RequestPlan:
        """Like `plan`, for a request that may be long to match."""
        if request is None or not self.is_long_to_match(request):
            return self.plan(request, frame, peer)
        matched = _Matched()
        await work_in_turns(self._matching(request, matched))
        return self._planned(matched, frame, peer)

    def plan(self, request: ReadRequest | None, frame: Frame, peer: Peer) -> RequestPlan:
        """The rules' plan for a request."""
        matched = _Matched()
        for _ in () if request is None else self._matching(request, matched):
            pass
        return self._planned(matched, frame, peer)

    def _planned(self, matched: _Matched, frame: Frame, peer: Peer) -> RequestPlan:
        hit = matched.hit
        if hit is None and matched.if_answered:
            return RequestPlan(lambda: self._watched(matched.if_answered, frame, peer))
        if hit is None:
            return RequestPlan(lambda: self._inner(frame, peer))
        wait = _wait_of(hit)
        if self._requests.divides(hit.request) and hit.rule.action.type != _CUT:
            return RequestPlan(lambda: self._act_on_part(hit, wait))
        if wait is not None:
            return RequestPlan(lambda: self._inner(frame, peer), wait)
        return RequestPlan(lambda: self._actions.act(hit))

    def _act_on_part(self, hit: Hit, wait: Callable[[], Awaitable[object]] | None) -> Dispatched:
        """Acts on what the rule has picked; the rest of the request, and what comes after it, goes on."""
        divided = self._requests.divide(hit.request, hit.parts)
        if wait is None:
            return self._actions.act(hit._replace(divided=divided))
        task = asyncio.ensure_future(_after(wait(), divided))
        self.keep(task)
        return asyncio.shield(task)

    def _watched(self, hits: Sequence[Hit], frame: Frame, peer: Peer) -> Dispatched:
        """Processes the request; the first of the rules acts whose error is in the answer."""
        answer = self._inner(frame, peer)
        return None if answer is None else self._when_answered(hits, answer)

    async def _when_answered(self, hits: Sequence[Hit], answer: Dispatched) -> Buffers | None:
        buffers = await finished(answer)
        if buffers is None:
            return None
        codes = self._requests.codes_in(hits[0].request, buffers)
        for hit in hits:
            if hit.rule.match.is_answered_by(codes) and self._acts(*hit[:3]):
                return await finished(self._actions.act(hit._replace(answer=buffers)))
        return buffers

    def _matching(self, request: ReadRequest, matched: _Matched) -> Iterator[None]:
        """Sets the first rule that acts, counted; a caller may do other things between steps."""
        self._actions.let_go_before(request)
        for rule in self._rules.of(request.facts.api):
            picked: list[Part] | None = None
            for some in self._picks(rule, request):
                picked = [] if picked is None else picked
                picked += some
                yield
            if picked is None or (not picked and _needs_part(rule, request)):
                continue
            if rule.match.error is not None:
                matched.if_answered.append(Hit(rule, request, picked))
            elif self._acts(rule, request, picked):
                matched.hit = Hit(rule, request, picked)
                return

    def _picks(self, rule: ActiveRule, request: ReadRequest) -> Iterator[Sequence[Part]]:
        """Yields the parts that the rule applies to, some at a time; nothing if it leaves the request alone."""
        facts = request.facts
        if rule.action.type == _CUT:
            if facts.from_broker == rule.action.broker_id:
                yield facts.parts
            return
        if rule.action.type == "deny" and facts.api in NEED_NO_RIGHT:
            return
        if rule.action.type == "expire_login" and request.peer.login is None:
            return
        is_meant = rule.match.api == facts.api or rule.action.type == _FREEZE
        if not is_meant and facts.is_between_brokers:
            return
        if rule.match.is_about_states and not (
            rule.match.picks_request(facts, request.peer)
            and self._coordinated.holds(rule.match, facts)
        ):
            return
        yield from rule.match.pick(facts, request.peer)

    def _acts(self, rule: ActiveRule, request: ReadRequest, parts: Sequence[Part]) -> bool:
        if self._actions.awaits_second(rule):
            return True  # the first of the two has been counted
        if rule.has_ended.is_set() or not rule.is_due:
            return False  # it was removed while the request was compared with the rules, or its turn is to come
        if rule.barrier is not None and rule.barrier.is_full:
            return False
        if not rule.turns.take(asyncio.get_running_loop().time()):
            return False
        is_partial = rule.action.type in _PARTIAL or self._requests.divides(request)
        self._hits.on_request(rule, request, parts if is_partial else request.facts.parts)
        return True


class FaultyDispatcher:
    """Asks the rules about every request of one connection, in place of the port's own dispatcher.

    A request that a rule delays or freezes holds up those after it: a connection is processed in order.
    It is processed when its time comes even if the client has gone by then, like a late packet.
    """

    def __init__(self, connection: Connection, port: FaultyPort) -> None:
        self._connection = connection
        self._port = port
        self._lane = connection.peer.order.faults

    @property
    def is_waiting(self) -> bool:
        """Whether requests wait for their turn, so that no other dispatcher may overtake them."""
        return bool(self._lane.places)

    def __call__(self, frame: Frame, peer: Peer) -> Dispatched:
        """Raises as the port's own dispatcher does."""
        port = self._port
        if not self._lane.places and not port.concerns(frame):
            return port.pass_on(frame, peer)
        if self._lane.places or port.takes_long(frame, peer):
            return self._late(lambda: port.read_and_plan(frame, peer))
        request = port.read(frame, peer)
        if port.is_long_to_match(request):
            return self._late(lambda: port.plan_in_turns(request, frame, peer))
        plan = port.plan(request, frame, peer)
        return plan.process() if plan.wait is None else self._late(lambda: _made(plan))

    def _late(self, make_plan: Callable[[], Awaitable[RequestPlan]]) -> Awaitable[Buffers | None]:
        task = asyncio.ensure_future(self._in_turn(make_plan, self._lane.enter()))
        self._port.keep(task)
        return asyncio.shield(task)

    async def _in_turn(
        self, make_plan: Callable[[], Awaitable[RequestPlan]], place: LanePlace
    ) -> Buffers | None:
        try:
            with place:
                await place.come()
                plan = await make_plan()
                if plan.wait is not None:
                    await plan.wait()
                dispatched = plan.process()
        finally:
            if not self.is_waiting:
                self._port.settle(self._connection)
        return await finished(dispatched)


def _is_admitted(peer: Peer) -> bool:
    """Whether rules look at its requests: what comes before a log-in is left to those who decide about that."""
    return peer.login is None or peer.login.is_open


async def _made(plan: RequestPlan) -> RequestPlan:
    return plan


def _wait_of(hit: Hit) -> Callable[[], Awaitable[object]] | None:
    """The wait of a request that is processed late."""
    rule = hit.rule
    if rule.action.type == _HOLD:
        assert rule.barrier is not None
        return partial(rule.barrier.hold, hit.request)
    if rule.action.type == _FREEZE:
        return rule.has_ended.wait
    if rule.action.type == "delay_request":
        delay_s = rule.action.draw_s(rule.turns.rng)
        return lambda: asyncio.sleep(delay_s)
    return None


async def _after(wait: Awaitable[object], divided: DividedRequest) -> Buffers | None:
    await wait
    return await finished(divided.process())


def _needs_part(rule: ActiveRule, request: ReadRequest) -> bool:
    """Whether the rule applies only to requests with parts that it picks."""
    return rule.match.needs_part(request.facts) and rule.action.type != _CUT
