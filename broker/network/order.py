"""The order of one connection's requests, where the ordered part of one takes longer than a step of the loop.

Requests of a connection are processed as they arrive. One that cannot finish its ordered part now holds the lane of
its kind; later requests of that kind wait behind it, in the order in which they came.

| lane      | held by                                            | its ordered part ends when the request |
|-----------|----------------------------------------------------|----------------------------------------|
| `imports` | a request whose handler has to be imported, or that| was given to its handler               |
|           | takes long to read                                 |                                        |
| `appends` | a produce whose records are checked in a thread,   | was appended, and waits for nothing but|
|           | or that has many partitions                        | its acknowledgement                    |
| `commits` | a commit of many partitions, or in a transaction   | has reached the coordinator            |
| `sessions`| a fetch that names a fetch session, and waits      | was answered                           |
| `faults`  | a request that a fault rule delays or freezes      | was processed                          |

`imports` and `faults` keep every later request; `appends` keeps produce requests, and looks at producers, by which they
would not be seen; `sessions` keeps those that name a session, which Kafka would not have read yet; `commits` keeps those of a group
that a commit would change: overtaken by another commit it would take back what that stored, by its member's leaving or
joining anew it would be refused, and by a look at the offsets it would not be seen.

Requests whose turn has come run together, in one step of the loop, as far as each ends its ordered part at once. If
each waited for a step of its own, a client that always has some in flight would keep the lane for ever.

Invariant: no request of a connection does its ordered part before those that entered its lane earlier have left.

A request does its ordered part in a task of its own, which the connection cancels when it is lost. What the handler
asks for is thus awaited in the step in which it is asked, and no answer is left between two tasks. What ends early,
cancelled or failed, leaves the lane like any other. The order of answers is the connection's (`answers.py`).
"""

from __future__ import annotations

import asyncio
from typing import Self

from echoless.broker.network.loop_turn import LOOP_TURN


class RequestLane:
    """The requests of one kind whose ordered part has not ended. Belongs to one event loop."""

    __slots__ = ("_asleep", "_turn_ends_at", "places")

    def __init__(self) -> None:
        self.places: list[LanePlace] = []
        """Oldest first; empty nearly always, and then the next request need not wait."""
        self._asleep: list[tuple[LanePlace, asyncio.Future[None]]] = []
        """The places that nothing but a leaving one lets in."""
        self._turn_ends_at: float | None = None
        """When the places have to yield to other connections; None before the first one of a step of the loop."""

    def enter(self) -> LanePlace:
        """Takes the next place. The call, not the first `await`, determines the position."""
        place = LanePlace(self)
        self.places.append(place)
        return place

    async def wait(self) -> None:
        """Returns when the requests that hold the lane now have left it."""
        with self.enter() as place:
            await place.come()

    async def let_in(self, place: LanePlace) -> None:
        """Returns when all places before this one have been left, and a turn of the event loop has time for it."""
        while not self._is_next(place):
            head = self.places[0]
            if head is place or head.is_woken:
                await asyncio.sleep(
                    0
                )  # in the next step it is this one's turn, unless the head waits for something
            else:
                asleep = asyncio.get_running_loop().create_future()
                self._asleep.append((place, asleep))
                await asleep
        place.is_woken = False

    def _is_next(self, place: LanePlace) -> bool:
        if self.places[0] is not place:
            return False
        now = LOOP_TURN.clock()
        if self._turn_ends_at is None:
            self._turn_ends_at = LOOP_TURN.ends_at(now)
            asyncio.get_running_loop().call_soon(self._end_turn)
        return now <= self._turn_ends_at

    def _end_turn(self) -> None:
        self._turn_ends_at = None

    def remove(self, place: LanePlace) -> None:
        """Drops the place, and has all others look whether it is their turn: in one step of the loop, in order."""
        self.places.remove(place)
        woken, self._asleep = self._asleep, []
        for one, asleep in woken:
            if not asleep.done():
                one.is_woken = True
                asleep.set_result(None)


class LanePlace:
    """The place of one request in a lane, from `RequestLane.enter` to the end of the `with` block that does the ordered part."""

    __slots__ = ("_lane", "is_woken", "left")

    def __init__(self, lane: RequestLane) -> None:
        self._lane = lane
        self.is_woken = False
        """Whether it looks, in the next step of the loop, if it is its turn."""
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the ordered part has ended, however it did."""

    async def come(self) -> None:
        """Returns when the requests before this one have left the lane."""
        await self._lane.let_in(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.left.set_result(None)
        self._lane.remove(self)


class RequestOrder:
    """The lanes of one connection."""

    __slots__ = ("appends", "commits", "faults", "imports", "sessions")

    def __init__(self) -> None:
        self.imports = RequestLane()
        self.appends = RequestLane()
        self.commits = RequestLane()
        self.faults = RequestLane()
        self.sessions = RequestLane()
