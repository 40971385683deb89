"""The refresher: every request is followed by a round, and no failure ends it silently."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from echoless.broker.tree import refresher
from echoless.broker.tree.node_tree import ConnectionLostError
from echoless.broker.tree.refresher import Refresher
from tests.fakes.memory_node_tree import turns


class Rounds:
    """Counts rounds; each lasts until it is let go, and fails with what is given."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.errors: list[Exception] = []

    async def __call__(self) -> None:
        self.count += 1
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop()


async def test_requests_during_a_round_are_one_more_round() -> None:
    """Nodes that change while it reads may have been read already, or not."""
    rounds = Rounds()
    one = Refresher("test", rounds)
    one.ask()
    one.start()
    await turns()
    for _ in range(5):
        one.ask()
    await turns()
    assert rounds.count == 1
    rounds.gate.set()
    await turns()
    assert rounds.count == 2
    await one.close()


async def test_a_round_without_an_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is retried by itself, after a while."""
    monkeypatch.setattr(refresher, "RETRY_INTERVAL_S", 0.001)
    rounds = Rounds()
    rounds.gate.set()
    rounds.errors = [ConnectionLostError("no"), ConnectionLostError("no")]
    answered = asyncio.Event()

    async def refresh() -> None:
        await rounds()
        answered.set()

    one = Refresher("test", refresh)
    one.start()
    one.ask()
    await asyncio.wait_for(answered.wait(), 60)
    assert rounds.count == 3
    await one.close()


async def test_a_bug_is_heard_of() -> None:
    """The loop's handler ends the process; the view must not freeze unnoticed."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    rounds = Rounds()
    rounds.gate.set()
    rounds.errors = [ValueError("bug")]
    one = Refresher("test", rounds)
    one.start()
    one.ask()
    await turns()
    assert [type(context["exception"]) for context in heard] == [ValueError]
    await one.close()


async def test_after_the_end_nothing_runs() -> None:
    """Even the current round stops."""
    rounds = Rounds()
    one = Refresher("test", rounds)
    await one.close()
    one.start()
    one.ask()
    await turns()
    await one.close()
    rounds.gate.set()
    one.ask()
    await turns()
    assert rounds.count == 1


async def test_a_round_comes_unasked_after_a_while() -> None:
    """An announcement may be lost."""
    rounds = asyncio.Semaphore(0)

    async def refresh() -> None:
        rounds.release()

    refresher = Refresher("view", refresh, every_s=0.001)
    refresher.start()
    async with asyncio.timeout(60):
        for _ in range(3):
            await rounds.acquire()
    await refresher.close()
