"""The loop and its processes: time jumps, order holds, what is stopped does not run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from tests.simulation import virtual_loop
from tests.simulation.process import Process
from tests.simulation.virtual_loop import LivelockError, VirtualLoop

ERRORS: list[BaseException] = []


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    ERRORS.clear()
    with VirtualLoop(Random(1), lambda _, error: ERRORS.append(error)) as one:  # type: ignore[abstract]
        yield one


async def _note_after(delay_s: float, what: str, notes: list[str]) -> None:
    await asyncio.sleep(delay_s)
    notes.append(what)


def test_time_jumps_from_timer_to_timer(loop: VirtualLoop) -> None:
    """An hour of sleep costs nothing, and ends at exactly its time."""
    process, begun = Process(loop, "p"), loop.time()
    task = process.spawn(asyncio.sleep(3600))
    assert loop.run_until(begun + 10_000, task.done)
    assert loop.time() == begun + 3600


def test_timers_of_one_time_run_in_the_order_of_their_making(loop: VirtualLoop) -> None:
    """Nothing is left to chance that is not drawn from the seed."""
    process, notes = Process(loop, "p"), list[str]()
    for name in "abc":
        process.spawn(_note_after(1.0, name, notes))
    loop.run_until(loop.time() + 2)
    assert notes == ["a", "b", "c"]


def test_a_paused_process_runs_later(loop: VirtualLoop) -> None:
    """Callbacks due in the pause run at its end, in order; another process continues meanwhile."""
    paused, other, notes = Process(loop, "p"), Process(loop, "q"), list[str]()
    paused.spawn(_note_after(2.0, "second", notes))
    paused.spawn(_note_after(1.0, "first", notes))
    other.spawn(_note_after(1.5, "other", notes))
    loop.run_until(loop.time() + 0.5)
    paused.pause()
    loop.run_until(loop.time() + 5)
    assert notes == ["other"]
    paused.resume()
    loop.run_until(loop.time() + 1)
    assert notes == ["other", "first", "second"]


def test_a_killed_process_never_runs_again(loop: VirtualLoop) -> None:
    """Not even its clean-up."""
    process, notes = Process(loop, "p"), list[str]()
    process.spawn(_note_after(1.0, "never", notes))
    loop.run_until(loop.time() + 0.5)
    process.kill()
    loop.run_until(loop.time() + 5)
    process.discard()
    assert notes == []


def test_an_executor_runs_inline(loop: VirtualLoop) -> None:
    """The result comes a little later, from the same thread."""
    process = Process(loop, "p")
    task = process.spawn(asyncio.to_thread(lambda: 7))
    loop.run_until(loop.time() + 1, task.done)
    assert task.result() == 7


def test_a_task_that_dies_is_heard_of(loop: VirtualLoop) -> None:
    """It is, even if no one awaits it."""

    async def fail() -> None:
        raise LookupError("a bug")

    Process(loop, "p").spawn(fail())
    loop.run_until(loop.time() + 1)
    assert [type(error) for error in ERRORS] == [LookupError]


def test_callbacks_without_end_are_a_livelock(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that never waits would hold up the simulation for ever."""
    monkeypatch.setattr(virtual_loop, "STEPS_AT_ONE_TIME_MAX", 1000)

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(LivelockError):
        loop.run_until(loop.time() + 1)


def test_a_timer_that_is_always_due_is_a_livelock(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does one that is set again and again to a time that has passed."""
    monkeypatch.setattr(virtual_loop, "STEPS_AT_ONE_TIME_MAX", 1000)

    def again() -> None:
        loop.call_later(-1, again)

    loop.call_soon(again)
    with pytest.raises(LivelockError):
        loop.run_until(loop.time() + 1)
