"""How requests share one turn of the event loop."""

from __future__ import annotations

import asyncio

from echoless.broker.network.loop_turn import CROWDED_S, NOTABLE_S, TURN_S, LoopTurn


async def test_a_request_gets_its_turn() -> None:
    """One that is alone, and one after others that took little."""
    turn = LoopTurn()
    assert turn.ends_at(7.0) == 7.0 + TURN_S
    for _ in range(1000):
        turn.count(NOTABLE_S / 2)
    turn.count(CROWDED_S / 2)
    assert turn.ends_at(7.0) == 7.0 + TURN_S


async def test_in_a_crowded_turn_each_gets_one_step() -> None:
    """Earlier ones have used up what all may take together; the next turn begins afresh."""
    turn = LoopTurn()
    for _ in range(3):
        turn.count(TURN_S)
    assert turn.ends_at(7.0) == 7.0
    await asyncio.sleep(0)
    assert turn.ends_at(7.0) == 7.0 + TURN_S


def test_a_loop_that_ended_in_the_middle_of_a_turn_leaves_nothing() -> None:
    """Its count is not added to the next turn's."""
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
    assert turn.used_s == CROWDED_S
    assert asyncio.run(ask()) == 7.0 + TURN_S


async def test_those_who_wait_are_served_in_their_order_until_a_turn_is_crowded() -> None:
    """One of them at least in each turn, and one that waits again goes to the end of the line."""
    turn, served = LoopTurn(), []

    def serve(name: str, *, again: bool = False) -> None:
        served.append(name)
        turn.count(CROWDED_S / 2)
        if again:
            turn.wait(lambda: serve(name))

    turn.wait(lambda: serve("a", again=True))
    for name in "bcd":
        turn.wait(lambda name=name: serve(name))
    assert not served
    found = []
    for _ in range(4):
        await asyncio.sleep(0)
        found.append("".join(served))
    assert found == ["ab", "abcd", "abcda", "abcda"]


async def test_one_that_fails_does_not_stop_the_line() -> None:
    """The loop reports it; the next is served."""
    turn, served, failures = LoopTurn(), [], []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
    turn.wait(lambda: served[0])
    turn.wait(lambda: served.append("next"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert served == ["next"]
    assert isinstance(failures[0], IndexError)


def test_a_line_whose_loop_has_ended_is_forgotten() -> None:
    """Its connections ended with the loop."""
    turn, served, loop = LoopTurn(), [], asyncio.new_event_loop()
    loop.call_soon(lambda: turn.wait(lambda: served.append("old")))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()

    async def wait() -> None:
        turn.wait(lambda: served.append("new"))
        await asyncio.sleep(0)

    asyncio.run(wait())
    assert served == ["new"]
