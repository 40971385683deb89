"""Threads that addresses share: as many calls at a time as there are threads, addresses in turn."""

from __future__ import annotations

import asyncio
import threading

import pytest

from echoless.broker.network.fair_workers import FairWorkers


class Calls:
    """Calls that note their names; the first is held until the test lets it go."""

    def __init__(self) -> None:
        self.thread = FairWorkers("test", 1)
        self.done: list[str] = []
        self.at_work = threading.Event()
        self.may_go_on = threading.Event()
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str) -> None:
        """Queues calls, in this order; `b1` is the first of the address `b`. The first of all is at work then."""
        for name in names:
            self.tasks[name] = asyncio.create_task(self.thread.run(name[0], self.call, name))
        await asyncio.sleep(0)
        assert self.at_work.wait(30)

    def call(self, name: str) -> None:
        self.at_work.set()
        assert self.may_go_on.wait(30)
        self.done.append(name)

    async def finish(self) -> list[str]:
        self.may_go_on.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self.thread.stop()
        return self.done


async def test_addresses_take_turns() -> None:
    """A flood from one delays another by one call."""
    calls = Calls()
    await calls.begin("a1", "a2", "a3", "a4", "b1", "b2", "c1")
    assert await calls.finish() == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_as_many_run_as_there_are_threads() -> None:
    """Two calls of one address meet in two threads; a third one waits for either."""
    workers = FairWorkers("test", 2)
    meeting = threading.Barrier(2, timeout=30)
    await asyncio.gather(workers.run("a", meeting.wait), workers.run("a", meeting.wait))
    async with asyncio.timeout(30):
        await workers.run("a", int)
    workers.stop()


async def test_those_that_leave_lose_their_turns_and_hold_up_none() -> None:
    """Waiting, just called up, or at work."""
    calls = Calls()
    await calls.begin("a1", "a2", "a3", "b1", "b2")
    calls.tasks["a3"].cancel()
    calls.tasks["a1"].cancel()
    await asyncio.sleep(0)
    calls.tasks["a2"].cancel()  # its turn has come
    assert await calls.finish() == ["a1", "b1", "b2"]


async def test_an_error_is_its_callers_own() -> None:
    """The next one is called."""
    calls = Calls()

    def fail() -> None:
        raise ValueError("mine")

    await calls.begin("a1")
    failing = asyncio.create_task(calls.thread.run("b", fail))
    await calls.begin("c1")
    assert await calls.finish() == ["a1", "c1"]
    with pytest.raises(ValueError, match="mine"):
        await failing


async def test_calls_that_wait_end_with_the_thread() -> None:
    """Their callers get a `CancelledError` at once."""
    calls = Calls()
    await calls.begin("a1", "a2", "b1")
    calls.thread.stop()
    for name in ("a2", "b1"):
        with pytest.raises(asyncio.CancelledError):
            await calls.tasks[name]
    assert await calls.finish() == ["a1"]
