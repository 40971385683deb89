"""Deadlines of many requests on one timer: none is early, none is missed, discarded ones leave nothing."""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.records.deadlines import TICKS_PER_S, Deadlines
from tests.simulation.virtual_loop import VirtualLoop

LATE_S = 2 / TICKS_PER_S
"""How late a deadline may be noticed."""


class Wait(NamedTuple):
    """One request: when it comes, its deadline, and when it is answered."""

    pause_s: float
    timeout_s: float
    answered_after_s: float


class Request:
    """A request that notes when it expired."""

    def __init__(self) -> None:
        self.expired_s: list[float] = []

    def expire(self) -> None:
        self.expired_s.append(asyncio.get_running_loop().time())


async def play(waits: list[Wait]) -> None:
    """Every request expires at its deadline, once, unless it is answered before."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    played = []
    for wait in waits:
        await asyncio.sleep(wait.pause_s)
        request, begun_s = Request(), loop.time()
        tick = deadlines.add(request, wait.timeout_s)
        loop.call_later(wait.answered_after_s, deadlines.discard, request, tick)
        played.append((wait, begun_s, request))
    await asyncio.sleep(10)
    assert len(deadlines) == 0
    for wait, begun_s, request in played:
        due_s = begun_s + max(wait.timeout_s, 0)
        if begun_s + wait.answered_after_s > due_s + LATE_S:
            (expired_s,) = request.expired_s
            assert due_s <= expired_s <= due_s + LATE_S
        elif begun_s + wait.answered_after_s < due_s:
            assert request.expired_s == []


seconds = st.floats(0, 3)


@given(st.lists(st.builds(Wait, st.floats(0, 0.5), st.floats(-1, 3), seconds), max_size=20))
def test_a_request_expires_at_its_deadline_unless_it_is_answered_before(waits: list[Wait]):
    """In any order of deadlines, with any of them discarded."""
    errors: list[BaseException] = []
    with VirtualLoop(Random(0), lambda _, error: errors.append(error)) as loop:
        task = loop.create_task(play(waits))
        assert loop.run_until(loop.time() + 60, task.done)
    task.result()
    assert errors == []


async def test_what_became_due_while_the_loop_was_busy_expires_together():
    """Deadlines of later ticks do not wait for turns of their own."""
    deadlines, requests = Deadlines(), [Request() for _ in range(3)]
    for number, request in enumerate(requests):
        deadlines.add(request, number * 2 / TICKS_PER_S)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 8 / TICKS_PER_S
    while loop.time() < end_s:  # holds the loop
        pass
    await asyncio.sleep(0)
    assert [len(request.expired_s) for request in requests] == [1, 1, 1]
