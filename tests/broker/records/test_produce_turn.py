"""The order of one connection's appends, and how soon those that waited for a thread are over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.network.request import Peer
from echoless.broker.records.produce_turn import in_turn


class _Appends:
    """Appends of one connection: the first one waits for a thread."""

    def __init__(self) -> None:
        self.peer = Peer(1, "127.0.0.1:1")
        self.thread: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.appended: list[int] = []
        self.first = in_turn(self.peer, self._opened)

    def add(self, number: int, work: Callable[[], None] = lambda: None) -> asyncio.Future[int]:
        return in_turn(self.peer, partial(self._append, number, work))

    async def _opened(self) -> int:
        await self.thread
        return await self._append(0)

    async def _append(self, number: int, work: Callable[[], None] = lambda: None) -> int:
        work()
        self.appended.append(number)
        return number


def _run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_those_that_waited_are_over_together() -> None:
    """A request that came one step later would find no one waiting: else each would wait for the one before it, for ever."""

    async def test() -> None:
        appends = _Appends()
        others = [appends.add(number) for number in range(1, 64)]
        appends.thread.set_result(None)
        await appends.first
        assert appends.peer.appending is None
        assert appends.appended == list(range(64))
        assert [one.result() for one in others] == list(range(1, 64))

    _run(test)


def test_a_long_line_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends of a millisecond each: no more than a turn's worth in one step of the loop."""

    async def test() -> None:
        now = 0.0

        def work() -> None:
            nonlocal now
            now += 0.001

        monkeypatch.setattr(LOOP_TURN, "clock", lambda: now)
        appends = _Appends()
        last = [appends.add(number, work) for number in range(1, 21)][-1]
        appends.thread.set_result(None)
        await appends.first
        steps = [len(appends.appended)]
        while not last.done():
            await asyncio.sleep(0)
            steps.append(len(appends.appended))
        assert appends.appended == list(range(21))
        assert max(after - before for before, after in itertools.pairwise([0, *steps])) <= 6

    _run(test)


def test_one_that_is_given_up_before_its_turn_is_not_appended() -> None:
    """Its connection has ended."""

    async def test() -> None:
        appends = _Appends()
        given_up, kept = appends.add(1), appends.add(2)
        given_up.cancel()
        appends.thread.set_result(None)
        assert await kept == 2
        assert appends.appended == [0, 2]

    _run(test)


def test_one_that_is_given_up_in_its_turn_is_cancelled() -> None:
    """Its connection has ended while the thread was busy with its batch, or with that of someone else."""

    async def test() -> None:
        appends = _Appends()
        other = appends.add(1)
        await asyncio.sleep(0)
        appends.first.cancel()
        assert await other == 1
        assert appends.thread.cancelled()
        assert appends.appended == [1]

    _run(test)


def test_an_error_belongs_to_its_own_request() -> None:
    """The next one is appended all the same."""

    async def test() -> None:
        def fail() -> None:
            raise ValueError("a bug")

        appends = _Appends()
        failing, next_one = appends.add(1, fail), appends.add(2)
        appends.thread.set_result(None)
        with pytest.raises(ValueError, match="a bug"):
            await failing
        assert await next_one == 2
        assert appends.peer.appending is None

    _run(test)


def test_one_that_is_cancelled_holds_up_no_other() -> None:
    """Whatever it waited for."""

    async def test() -> None:
        appends = _Appends()
        other = appends.add(1)
        await asyncio.sleep(0)
        appends.thread.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appends.first
        assert await other == 1

    _run(test)


def test_nothing_waits_for_ever_when_the_loop_ends() -> None:
    """Its tasks are cancelled: so is what waits in line."""

    async def test() -> None:
        appends = _Appends()
        other = appends.add(1)
        await asyncio.sleep(0)
        (line,) = asyncio.all_tasks() - {asyncio.current_task()}
        line.cancel()
        for one in (appends.first, other):
            with pytest.raises(asyncio.CancelledError):
                await one
        assert appends.peer.appending is None

    _run(test)
