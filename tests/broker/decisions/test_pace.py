"""Consoles see a burst of appends whole, and are told how many they were not shown of a flood."""

from __future__ import annotations

import asyncio

from echoless.broker.decisions.events import APPEND, REJECT, BatchDecision, Skipped
from echoless.broker.decisions.pace import BURST_MAX
from echoless.broker.decisions.stream import DecisionStream
from tests.broker.admin.decider import Decider
from tests.broker.admin.fake_broker import FakeBroker


async def test_a_flood_is_counted_and_a_refusal_in_it_is_shown() -> None:
    """Shown and skipped appends add up to all of them."""
    broker = FakeBroker()
    decider, stream = Decider(broker), DecisionStream(is_console=True)
    decider.append()
    broker.decisions.follow(stream)
    for _ in range(3 * BURST_MAX):
        decider.append()
    assert not broker.decisions.is_followed
    decider.refuse()
    waiting = await stream.take()
    assert waiting is not None
    outcomes = [event.outcome for event in waiting.events if isinstance(event, BatchDecision)]
    assert outcomes == [APPEND] * BURST_MAX + [REJECT]
    later = await stream.take()
    assert later is not None
    assert [event.appends for event in later.events if isinstance(event, Skipped)] == [
        2 * BURST_MAX
    ]
    assert broker.decisions.is_followed
    broker.decisions.unfollow(stream)
    assert not broker.decisions.is_followed


async def test_a_program_is_shown_everything() -> None:
    """The pace is for consoles alone: with another follower, all see all, and then it holds again."""
    broker = FakeBroker()
    decider, console, program = Decider(broker), DecisionStream(is_console=True), DecisionStream()
    broker.decisions.follow(console)
    broker.decisions.follow(program)
    for _ in range(2 * BURST_MAX):
        decider.append()
    for stream in (console, program):
        waiting = await stream.take()
        assert waiting is not None
        assert len(waiting.events) == 2 * BURST_MAX
    broker.decisions.unfollow(program)
    for _ in range(2 * BURST_MAX):
        decider.append()
    assert not broker.decisions.is_followed
    broker.decisions.unfollow(console)
    await asyncio.sleep(0)
