"""Requests with many rows, answered a turn at a time, so that other clients are served in between.

A request may ask for ten thousand rows. Processed in one go, they would hold the event loop until all
are done; so a handler provides its rows as an iterator. What fits into one turn is answered at once.
The rest is processed in further turns, and its answer, which has many rows too, is encoded in a
thread: the interpreter switches between threads by itself.

Each row must be independent of the others: anything may change between two turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from echoless.broker.network.fair_workers import FairWorkers
from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.threads import BESIDE_THE_LOOP

Fields = Mapping[str, Any]
Described = Fields | Awaitable[Fields]
"""An answer as plain values, at once or later."""
Row = TypeVar("Row")
Result = TypeVar("Result")

ROWS_PER_TURN: Final = 500
"""Rows that one turn may add: even rows that cost next to nothing take time to encode."""


FOR_CLIENTS: Final = FairWorkers("for-clients", 1)
"""Whatever one client's request needs the interpreter for: reading and encoding many rows. Addresses take turns.

What the broker needs itself (imports, loading the state that it coordinates) has a thread that no client can occupy,
`BESIDE_THE_LOOP`.
"""
PATTERNS: Final = FairWorkers("patterns", 1)
"""Regular expressions of clients: matching one does not need the interpreter, so it holds up no one else here."""
ADMIN_PORT: Final = "the admin port"
"""The address of everyone who reads the admin port: all of them have one turn."""


class ManyRows(dict[str, Any]):
    """An answer that took more than one turn."""


def in_turns(rows: Iterator[Row], answer: Callable[[list[Row]], Fields]) -> Described:
    """Calls `answer` with all rows: at once if they fit into one turn, else later, as `ManyRows`."""
    found: list[Row] = []
    if _take_turn(rows, found):
        return answer(found)
    return _in_further_turns(rows, found, answer)


async def _in_further_turns(
    rows: Iterator[Row], found: list[Row], answer: Callable[[list[Row]], Fields]
) -> ManyRows:
    is_complete = False
    while not is_complete:
        await asyncio.sleep(0)
        is_complete = _take_turn(rows, found)
    return ManyRows(answer(found))


def _take_turn(rows: Iterator[Row], found: list[Row]) -> bool:
    """Adds the rows of one turn to `found`; returns whether those were all."""
    clock, rows_max = LOOP_TURN.clock, len(found) + ROWS_PER_TURN
    began_at = clock()
    ends_at = LOOP_TURN.ends_at(began_at)
    try:
        for row in rows:
            found.append(row)
            if len(found) >= rows_max or clock() > ends_at:
                return False
        return True
    finally:
        LOOP_TURN.count(clock() - began_at)


async def work_in_turns(steps: Iterator[object]) -> None:
    """Takes all steps, yielding to others in between."""
    is_complete = _take_turn(steps, [])
    while not is_complete:
        await asyncio.sleep(0)
        is_complete = _take_turn(steps, [])


async def awaited_in_turns(
    rows: Iterable[Awaitable[Row]], answer: Callable[[list[Row]], Fields]
) -> Fields:
    """Awaits the rows one after the other and calls `answer` with all of them.

    Rows that wait for something yield by themselves; those that do not, errors for the most part, take
    turns. An answer of many rows is `ManyRows`.
    """
    found: list[Row] = []
    clock = LOOP_TURN.clock
    began_at = clock()
    ends_at = LOOP_TURN.ends_at(began_at)
    for row in rows:
        found.append(await row)
        if clock() > ends_at:
            await asyncio.sleep(0)
            began_at = clock()
            ends_at = LOOP_TURN.ends_at(began_at)
    fields = answer(found)
    return ManyRows(fields) if len(found) > ROWS_PER_TURN else fields


async def in_thread(work: Callable[[], Result]) -> Result:
    """Runs `work` beside the event loop, after what was given before: imports modules, loads state. Not for clients."""
    return await BESIDE_THE_LOOP.run(work)


def start_client_threads() -> None:
    """Starts the threads that work for clients. Raises `OutOfThreadsError`."""
    FOR_CLIENTS.start()
    PATTERNS.start()


async def for_client(address: str, work: Callable[[], Result]) -> Result:
    """Runs `work` beside the event loop on behalf of `address`, a host, as soon as it is that one's turn."""
    return await FOR_CLIENTS.run(address, work)
