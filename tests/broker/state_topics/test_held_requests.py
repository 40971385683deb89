"""Requests that a loading shard holds: their order, their turns, and the end of their queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.groups.shard import GroupShard
from echoless.broker.network.loop_turn import LOOP_TURN, TURN_S
from echoless.broker.network.promise import Promise
from echoless.broker.state_topics import held_requests as held_module
from echoless.broker.state_topics.held_requests import Answered, HeldRequests
from echoless.broker.state_topics.shard_state import ShardState
from echoless.coordinators.events import Abandoned, Requested
from echoless.coordinators.groups.answers import DeleteAnswer, HeartbeatAnswer
from echoless.coordinators.groups.effects import GroupEffect
from echoless.coordinators.groups.events import GroupEvent
from echoless.coordinators.groups.requests import DeleteGroup, Heartbeat
from echoless.coordinators.groups.while_loading import refusal_while_loading
from echoless.protocol.errors import ErrorCode
from tests.broker.state_topics.sharded import ALIVE, HEARTBEAT, Sharded, alive
from tests.broker.until import WITHIN_S, until

REFUSED = HeartbeatAnswer(ErrorCode.NOT_COORDINATOR)
REQUEST_S = 0.001
PER_TURN = round(TURN_S / REQUEST_S) + 1
"""Requests that one turn may have; the last of them takes it beyond its end."""
NUMBERS = st.integers(0, 60)
ACTIONS = st.lists(st.sampled_from(["arrives", "turn"]) | NUMBERS, max_size=60)
"""A number: the client of that request leaves."""


class Crowd:
    """Clients of one shard, whose coordinator takes `REQUEST_S` for each of their numbered requests."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        patch.setattr(LOOP_TURN, "clock", lambda: self.now_s)
        patch.setattr(held_module, "HELD_S", WITHIN_S)
        self.one = Sharded(replicas=(1, 2))
        self.one.store(b"a")
        self.one.coordinator.effects_of = self._process
        self.shard = GroupShard(self.one.led.partition, self.one.parts)
        self.answers: list[Answered] = []
        self.processed: list[int] = []
        self.left: set[int] = set()

    def _process(self, event: GroupEvent) -> list[GroupEffect]:
        if isinstance(event, Requested):
            self.now_s += REQUEST_S
            self.processed.append(event.request.generation_id)  # type: ignore[union-attr]
        return alive(event)

    @property
    def waiting(self) -> int:
        """How many requests are neither processed nor given up by their clients."""
        return len(self.answers) - len(self.processed) - len(self.left)

    def arrive(self) -> None:
        self.answers.append(self.shard.ask(Heartbeat("g", len(self.answers), "m", None)))

    def leave(self, number: int) -> None:
        """Ends the connection of a client that has no answer."""
        if number < len(self.answers) and number not in (*self.processed, *self.left):
            answer = self.answers[number]
            assert isinstance(answer, Promise)
            answer.abandon()
            self.left.add(number)

    async def turn(self) -> None:
        """Has everyone else on the loop do one step."""
        before = len(self.processed)
        await asyncio.sleep(0)
        assert len(self.processed) - before <= PER_TURN, "the loop was held"

    async def load(self) -> None:
        """Returns in the step after the one that ended the loading."""
        await until(lambda: self.one.led.partition.waiters.commit.heap)
        assert self.processed == []
        self.one.led.partition.note_fetch(2, 7, 1)
        async with asyncio.timeout(WITHIN_S):
            while self.shard.state is ShardState.LOADING:
                await self.turn()

    async def do(self, action: str | int) -> None:
        before = self.waiting
        match action:
            case "arrives":
                self.arrive()
                assert self.waiting == max(before - 1, 0), "the queue does not end"
            case "turn":
                await self.turn()
            case int(number):
                self.leave(number)


async def answer_to(answered: Answered) -> Any:
    return await answered if isinstance(answered, Awaitable) else answered


@given(held=NUMBERS, actions=ACTIONS, is_lost=st.booleans())
async def test_no_history_breaks_the_order_or_holds_the_loop(
    held: int, actions: list[str | int], *, is_lost: bool
) -> None:
    """A commit that overtook the one before it would be taken back by that; with the lead, all that wait are refused."""
    with pytest.MonkeyPatch.context() as patch:
        crowd = Crowd(patch)
        for _ in range(held):
            crowd.arrive()
        await crowd.load()
        for action in actions:
            await crowd.do(action)
        if is_lost:
            crowd.shard.lose()
        while crowd.waiting > 0 and not is_lost:
            await crowd.turn()
        in_order = [number for number in range(len(crowd.answers)) if number not in crowd.left]
        assert crowd.processed == in_order[: len(crowd.processed)]
        for number in in_order:
            expected = ALIVE if number in crowd.processed else REFUSED
            assert await answer_to(crowd.answers[number]) == expected


async def test_offsets_are_not_forgotten_while_a_commit_of_them_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The offsets of a deleted topic would come back with a commit that was held, and stay."""
    crowd = Crowd(monkeypatch)
    for _ in range(2 * PER_TURN):
        crowd.arrive()
    await crowd.load()
    assert crowd.waiting

    def work(*_: object) -> Iterator[list[GroupEffect]]:
        yield []

    assert list(crowd.shard.perform_in_turn(work)) == []
    while crowd.waiting > 0:
        await crowd.turn()
    assert list(crowd.shard.perform_in_turn(work)) == [None]


async def test_a_request_whose_connection_ends_after_its_turn_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordinator learns of it, as it does of one that was not held."""
    crowd = Crowd(monkeypatch)
    crowd.one.coordinator.effects_of = lambda _: []
    crowd.arrive()
    await crowd.load()
    answer = crowd.answers[0]
    assert isinstance(answer, Promise)
    answer.abandon()
    assert crowd.one.coordinator.events[-1] == Abandoned(1)


async def after_timers() -> None:
    """Returns when every timer of 0 s that is set now has fired."""
    is_over = asyncio.Event()
    asyncio.get_running_loop().call_later(0, is_over.set)
    await is_over.wait()


async def test_a_request_that_is_given_up_is_not_processed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client repeats it."""
    monkeypatch.setattr(held_module, "HELD_S", 0)
    held = HeldRequests(lambda _: ALIVE, refusal_while_loading)
    answer = held.hold(DeleteGroup("g"))
    await after_timers()
    assert not held
    held.process_all()
    assert await answer_to(answer) == DeleteAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


async def test_a_request_whose_turn_will_come_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its time is limited while the shard loads, and no longer."""
    monkeypatch.setattr(held_module, "HELD_S", 0)
    held = HeldRequests(lambda _: ALIVE, refusal_while_loading)
    answers = [held.hold(HEARTBEAT) for _ in range(2)]
    turns = held.turns()
    next(turns)
    await after_timers()
    assert len(held) == 1
    assert list(turns) == [None]
    assert [await answer_to(answer) for answer in answers] == [ALIVE, ALIVE]


async def test_a_request_that_fails_is_its_own_affair() -> None:
    """The next one is answered."""

    def process(request: Any) -> HeartbeatAnswer:
        if request is not HEARTBEAT:
            raise ValueError("a bug")
        return ALIVE

    held = HeldRequests(process, refusal_while_loading)
    failing, fine = held.hold(Heartbeat("g", 1, "failing", None)), held.hold(HEARTBEAT)
    held.process_all()
    with pytest.raises(ValueError, match="a bug"):
        await answer_to(failing)
    assert await answer_to(fine) == ALIVE
