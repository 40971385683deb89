"""How requests share one turn of the event loop."""

from __future__ import annotations

import asyncio

from broker.network.loop_turn import CROWDED_S, NOTABLE_S, TURN_S, LoopTurn


async def test_a_request_gets_its_turn() -> None:
    """One that is alone, and one after others that took little."""
    turn = LoopTurn()
    assert turn.ends_at(7.0) == 7.0 + TURN_S
    for _ in range(1000):
        turn.count(NOTABLE_S / 2)
    turn.count(CROWDED_S / 2)
    assert turn.ends_at(7.0) == 7.0 + TURN_S


async def test_in_a_crowded_turn_each_gets_one_step() -> None:
    """Those before it have taken what all may take together; the next turn begins anew."""
    turn = LoopTurn()
    for _ in range(3):
        turn.count(TURN_S)
    assert turn.ends_at(7.0) == 7.0
    await asyncio.sleep(0)
    assert turn.ends_at(7.0) == 7.0 + TURN_S


def test_a_loop_that_ended_in_the_middle_of_a_turn_leaves_nothing() -> None:
    """What was counted on it does not count on the next one."""
    turn, loop = LoopTurn(), asyncio.new_event_loop()

    async def count() -> None:
        turn.count(CROWDED_S)
        loop.stop()

    async def ask() -> float:
        return turn.ends_at(7.0)

    counting = loop.create_task(count())
    loop.run_forever()
    assert counting.done()
    loop.close()
    assert turn._used_s == CROWDED_S
    assert asyncio.run(ask()) == 7.0 + TURN_S
