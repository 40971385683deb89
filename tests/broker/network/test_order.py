"""A lane of one connection: requests wait behind the one that holds it, and are over soon once it is done."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.network.order import LanePlace, RequestLane


class _Requests:
    """Requests of one connection, each in a task of its own: the first one waits for a thread."""

    def __init__(self) -> None:
        self.lane = RequestLane()
        self.thread: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.processed: list[int] = []
        self.first = asyncio.ensure_future(self._opened(self.lane.enter()))

    def add(self, number: int, work: Callable[[], None] = lambda: None) -> asyncio.Task[int]:
        return asyncio.ensure_future(self._process(self.lane.enter(), number, work))

    async def _opened(self, place: LanePlace) -> int:
        with place:
            await place.come()
            await self.thread
            self.processed.append(0)
        return 0

    async def _process(self, place: LanePlace, number: int, work: Callable[[], None]) -> int:
        with place:
            await place.come()
            work()
            self.processed.append(number)
        return number


def _run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_those_that_waited_are_over_together() -> None:
    """A request that came one step later would find no one waiting: else each would wait for the one before it, for ever."""

    async def test() -> None:
        requests = _Requests()
        others = [requests.add(number) for number in range(1, 64)]
        await asyncio.sleep(0)
        requests.thread.set_result(None)
        await requests.first
        await asyncio.sleep(0)
        assert not requests.lane.places
        assert requests.processed == list(range(64))
        assert [await one for one in others] == list(range(1, 64))

    _run(test)


def test_those_that_come_at_every_step_do_not_hold_the_lane_for_ever() -> None:
    """A client that always has requests in flight sends one for each answer."""

    async def test() -> None:
        requests = _Requests()
        waiting = [requests.add(number) for number in range(1, 6)]
        await asyncio.sleep(0)
        requests.thread.set_result(None)
        steps, number = 0, 6
        while requests.lane.places and steps < 100:
            waiting.append(requests.add(number))
            number, steps = number + 1, steps + 1
            await asyncio.sleep(0)
        assert steps <= 3
        assert [await one for one in waiting] == list(range(1, number))
        assert requests.processed == list(range(number))

    _run(test)


def test_one_that_waits_for_a_thread_again_keeps_the_others_behind_it() -> None:
    """Woken with those before it, they look again when it has left."""

    async def test() -> None:
        requests = _Requests()
        before = requests.add(1)
        thread = asyncio.get_running_loop().create_future()

        async def opened(place: LanePlace) -> None:
            with place:
                await place.come()
                await thread
                requests.processed.append(2)

        slow = asyncio.ensure_future(opened(requests.lane.enter()))
        after = requests.add(3)
        requests.thread.set_result(None)
        await before
        for _ in range(5):
            await asyncio.sleep(0)
        assert requests.processed == [0, 1]
        thread.set_result(None)
        await asyncio.gather(slow, after)
        assert requests.processed == [0, 1, 2, 3]
        assert not requests.lane.places

    _run(test)


def test_a_long_line_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of a millisecond each: no more than a turn's worth in one step of the loop."""

    async def test() -> None:
        now = 0.0

        def work() -> None:
            nonlocal now
            now += 0.001

        monkeypatch.setattr(LOOP_TURN, "clock", lambda: now)
        requests = _Requests()
        last = [requests.add(number, work) for number in range(1, 21)][-1]
        await asyncio.sleep(0)
        requests.thread.set_result(None)
        steps = [0]
        while not last.done():
            await asyncio.sleep(0)
            steps.append(len(requests.processed))
        assert requests.processed == list(range(21))
        assert max(after - before for before, after in itertools.pairwise(steps)) <= 6

    _run(test)


def test_one_that_is_cancelled_before_its_turn_is_not_processed() -> None:
    """Its connection has ended."""

    async def test() -> None:
        requests = _Requests()
        cancelled, kept = requests.add(1), requests.add(2)
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        requests.thread.set_result(None)
        assert await kept == 2
        assert requests.processed == [0, 2]

    _run(test)


def test_one_that_is_cancelled_in_its_turn_holds_up_no_other() -> None:
    """Its connection has ended while the thread was busy with its records, or with those of someone else."""

    async def test() -> None:
        requests = _Requests()
        place_left = requests.lane.places[0].left
        other = requests.add(1)
        await asyncio.sleep(0)
        requests.first.cancel()
        assert await other == 1
        assert requests.thread.cancelled()
        assert place_left.done()
        assert requests.processed == [1]

    _run(test)


def test_one_whose_thread_is_cancelled_holds_up_no_other() -> None:
    """The broker stops its threads before it closes what waits for them."""

    async def test() -> None:
        requests = _Requests()
        other = requests.add(1)
        await asyncio.sleep(0)
        requests.thread.cancel()
        with pytest.raises(asyncio.CancelledError):
            await requests.first
        assert await other == 1

    _run(test)


def test_an_error_belongs_to_its_own_request() -> None:
    """The next one is processed as if nothing had happened."""

    async def test() -> None:
        def fail() -> None:
            raise ValueError("a bug")

        requests = _Requests()
        failing, next_one = requests.add(1, fail), requests.add(2)
        requests.thread.set_result(None)
        with pytest.raises(ValueError, match="a bug"):
            await failing
        assert await next_one == 2
        assert not requests.lane.places

    _run(test)


def test_one_that_only_waits_for_those_before_it_holds_up_no_one_after() -> None:
    """A look at the offsets behind a commit."""

    async def test() -> None:
        requests = _Requests()
        look = asyncio.ensure_future(requests.lane.wait())
        await asyncio.sleep(0)
        assert not look.done()
        other = requests.add(1)
        requests.thread.set_result(None)
        await look
        assert requests.processed[0] == 0
        assert await other == 1
        assert not requests.lane.places

    _run(test)
