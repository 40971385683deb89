"""The effect of each action on a request and its answer.

Processing is the port's own dispatcher; what stands around it is here. An answer that is lost holds
its place in the connection: what comes behind it waits, because a Kafka client that gets the answer
to its second request first takes the broker for broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from echoless.broker.doubt import StateInDoubtError
from echoless.broker.faults.action import Later
from echoless.broker.faults.blackhole import Blackhole
from echoless.broker.faults.coordinated import CoordinatedStates
from echoless.broker.faults.match import Part
from echoless.broker.faults.requests import (
    Dispatch,
    DividedRequest,
    ReadRequest,
    Requests,
    finished,
)
from echoless.broker.faults.rule import ActiveRule
from echoless.broker.faults.unexpected import report_unexpected
from echoless.broker.network.answers import Buffers
from echoless.broker.network.pieces import Pieces
from echoless.broker.network.reading import Dispatched
from echoless.broker.network.request import CloseConnectionError
from echoless.protocol.errors import KafkaError

Crash = Callable[[ActiveRule], None]
"""Ends the process at once, and says why in the log. A simulation may return from it."""


class Hit(NamedTuple):
    """A rule that acts on a request."""

    rule: ActiveRule
    request: ReadRequest
    parts: Sequence[Part]
    """The parts that the rule picked."""
    divided: DividedRequest | None = None
    """The request without what no rule has picked, which is processed; None: it is whole."""
    answer: Buffers | None = None
    """The answer, if the request is processed already: the rule is about that."""


class _Held(NamedTuple):
    """The first of two requests to be swapped."""

    hit: Hit
    answer: asyncio.Future[Dispatched]


class RequestActions:
    """The actions on one port."""

    def __init__(
        self, process: Dispatch, requests: Requests, crash: Crash, coordinated: CoordinatedStates
    ) -> None:
        self._coordinated = coordinated
        self._dark: dict[str, Blackhole] = {}
        """By the name of the rule."""
        self._process_frame = process
        self._requests = requests
        self._crash = crash
        self._held: dict[str, _Held] = {}
        """By the name of the rule that swaps."""
        self._stopping = asyncio.Event()
        self._actions: Final[dict[str, Callable[[Hit], Dispatched]]] = {
            "drop_request": self._drop_request,
            "drop_response": self._drop_response,
            "delay_response": self._delay_response,
            "hold_response": self._hold_response,
            "blackhole": self._swallow,
            "error": self._refuse,
            "error_after": self._refuse_after,
            "deny": self._deny,
            "expire_login": self._expire_login,
            "close_before": self._close_before,
            "close_after": self._close_after,
            "close_within": self._in_pieces,
            "trickle": self._in_pieces,
            "swap": self._swap,
            "twice": self._twice,
            "crash": self._crash_before_response,
            "cut_replica_link": self._drop_request,
        }

    def act(self, hit: Hit) -> Dispatched:
        """The answer, if there is to be one. Raises `CloseConnectionError`."""
        return self._actions[hit.rule.action.type](hit)

    def forget_all_but(self, rules: Sequence[ActiveRule]) -> None:
        """Lets the requests go on that wait for a rule which is no more."""
        names = {rule.name for rule in rules}
        for name in [name for name in self._held if name not in names]:
            self._release(name)
        for name in [name for name in self._dark if name not in names]:
            del self._dark[name]

    def stop(self) -> None:
        """Ends every wait."""
        self.forget_all_but(())
        self._stopping.set()

    def _process(self, hit: Hit) -> Dispatched:
        if hit.answer is not None:
            return hit.answer
        if hit.divided is not None:
            return hit.divided.process()
        return self._process_frame(hit.request.frame, hit.request.peer)

    # --- refused ---

    def _refuse(self, hit: Hit) -> Dispatched:
        if hit.divided is not None:
            return hit.divided.refuse(_error(hit), is_processed=False)
        return self._requests.refuse(hit.request, hit.parts, _error(hit))

    def _refuse_after(self, hit: Hit) -> Dispatched:
        if hit.divided is not None:
            return hit.divided.refuse(_error(hit), is_processed=True)
        return self._requests.refuse_after(hit.request, hit.parts, _error(hit))

    # --- lost ---

    def _drop_request(self, hit: Hit) -> Dispatched:
        if hit.rule.action.later is Later.SEND or not hit.request.facts.is_answered:
            return None
        return self._silence(None)

    def _drop_response(self, hit: Hit) -> Dispatched:
        answer = self._process(hit)
        if answer is None:
            return None  # the client expects none
        return _nothing(answer) if hit.rule.action.later is Later.SEND else self._silence(answer)

    async def _silence(self, answer: Dispatched) -> Buffers | None:
        """Answers nothing; ends with the connection, or ends it with the broker."""
        await finished(answer)
        await self._stopping.wait()
        raise CloseConnectionError

    def _swallow(self, hit: Hit) -> Dispatched:
        rule = hit.rule
        hole = self._dark.get(rule.name)
        if hole is None:
            hole = self._dark[rule.name] = Blackhole(rule, self._coordinated)
        hole.note(hit.request)
        return self._silent_until_end(hit) if hit.request.facts.is_answered else None

    async def _silent_until_end(self, hit: Hit) -> Buffers | None:
        """Answers nothing, and ends the connection with the rule: the client is to begin anew."""
        waits = [asyncio.ensure_future(one.wait()) for one in (hit.rule.has_ended, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        raise _closed(hit)

    # --- late, or in pieces ---

    async def _delayed(self, hit: Hit, answer: Dispatched) -> Buffers | None:
        buffers = await finished(answer)
        await asyncio.sleep(hit.rule.action.draw_s(hit.rule.turns.rng))
        return buffers

    def _delay_response(self, hit: Hit) -> Dispatched:
        answer = self._process(hit)
        return None if answer is None else self._delayed(hit, answer)

    def _hold_response(self, hit: Hit) -> Dispatched:
        answer = self._process(hit)
        return None if answer is None else self._held_back(hit, answer)

    async def _held_back(self, hit: Hit, answer: Dispatched) -> Buffers | None:
        buffers, barrier = await finished(answer), hit.rule.barrier
        assert barrier is not None
        await barrier.hold(hit.request)
        return buffers

    def _in_pieces(self, hit: Hit) -> Dispatched:
        answer = self._process(hit)
        return None if answer is None else self._cut_up(hit, answer)

    async def _cut_up(self, hit: Hit, answer: Dispatched) -> Buffers | None:
        buffers = await finished(answer)
        if buffers is None:
            return None
        data, action = b"".join(buffers), hit.rule.action
        if action.bytes is None:
            reason = "a fault ends it within an answer"
            return Pieces(data[: len(data) // 2], len(data), 0.0, closes=reason)
        return Pieces(data, action.bytes, action.draw_s(hit.rule.turns.rng))

    # --- without a right, or a session ---

    def _deny(self, hit: Hit) -> Dispatched:
        rule, right = hit.rule, hit.rule.action.right
        assert right is not None
        topics = frozenset(part.topic for part in hit.parts if part.topic)
        is_partial = rule.match.names_partitions and bool(topics)
        return self._requests.deny(hit.request, right, topics if is_partial else None)

    def _expire_login(self, hit: Hit) -> Dispatched:
        login = hit.request.peer.login
        assert login is not None
        answer = self._process(hit)
        login.expire()
        return answer

    # --- the end of the connection ---

    def _close_before(self, hit: Hit) -> Dispatched:
        raise _closed(hit)

    def _close_after(self, hit: Hit) -> Dispatched:
        return self._close_when(hit, self._process(hit))

    async def _close_when(self, hit: Hit, answer: Dispatched) -> Buffers | None:
        await finished(answer)
        raise _closed(hit)

    # --- order and number ---

    def awaits_second(self, rule: ActiveRule) -> bool:
        """Whether a request waits for the next one that this rule matches."""
        return rule.name in self._held

    def let_go_before(self, request: ReadRequest) -> None:
        """Processes held requests that this one, from the same connection, must not overtake.

        A producer that raises its epoch counts on the order of its connection, which no real broker
        breaks: it numbers its unanswered batches anew. INVALID_PRODUCER_EPOCH to one of the old
        copies would make it give the records up.
        """
        for name, (hit, _) in list(self._held.items()):
            is_same = hit.request.peer.connection_id == request.peer.connection_id
            if is_same and request.facts.raises_epoch_of(hit.request.facts):
                self._release(name)

    def _swap(self, hit: Hit) -> Dispatched:
        name = hit.rule.name
        if name in self._held:
            answer = self._process(hit)
            self._release(name)
            return answer
        loop = asyncio.get_running_loop()
        wait_s = hit.rule.action.draw_s(hit.rule.turns.rng)
        held = _Held(hit, loop.create_future())
        self._held[name] = held
        loop.call_later(wait_s, self._give_up, held)
        return self._answer_of(held)

    async def _answer_of(self, held: _Held) -> Buffers | None:
        await asyncio.wait((held.answer,))
        return await finished(held.answer.result())

    def _give_up(self, held: _Held) -> None:
        """Processes the first request alone, as there was no second one."""
        name = held.hit.rule.name
        if self._held.get(name) is held:
            self._release(name)

    def _release(self, name: str) -> None:
        """Processes the request that was held back, whether its client is still there or not."""
        hit, answer = self._held.pop(name)
        try:
            dispatched = self._process(hit)
        except Exception as error:  # it belongs to the connection of the first
            answer.set_exception(error)
            answer.exception()  # retrieved here in case nothing else does
            if isinstance(error, StateInDoubtError):
                raise
        else:
            if isinstance(dispatched, Awaitable):
                dispatched = asyncio.ensure_future(dispatched)
                dispatched.add_done_callback(report_unexpected)
            answer.set_result(dispatched)

    def _twice(self, hit: Hit) -> Dispatched:
        answer = self._process(hit)
        return self._and_again(answer, self._process(hit))

    async def _and_again(self, answer: Dispatched, again: Dispatched) -> Buffers | None:
        both = [asyncio.ensure_future(finished(one)) for one in (answer, again)]
        both[1].add_done_callback(report_unexpected)
        first, second = await asyncio.gather(*both, return_exceptions=True)
        if isinstance(second, StateInDoubtError):
            raise second
        if isinstance(first, BaseException):
            raise first
        return first

    # --- the end of the process ---

    def _crash_before_response(self, hit: Hit) -> Dispatched:
        return self._crash_when(hit, self._process(hit))

    async def _crash_when(self, hit: Hit, answer: Dispatched) -> Buffers | None:
        buffers = await finished(answer)
        self._crash(hit.rule)
        return buffers


async def _nothing(answer: Dispatched) -> Buffers | None:
    await finished(answer)
    return None


def _error(hit: Hit) -> KafkaError:
    code = hit.rule.action.code
    assert code is not None
    return KafkaError(code, f"the fault rule {hit.rule.name} says so")


def _closed(hit: Hit) -> CloseConnectionError:
    return CloseConnectionError(f"the fault rule {hit.rule.name} says so")
