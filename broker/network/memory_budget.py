"""The budget for the bytes of large requests in the broker at once, over all connections.

A connection reserves memory for a large frame step by step, as the frame's bytes arrive, and releases
it when the request no longer needs it. The budget is four frames of the largest size, in three
parts, so that neither idle nor large requests can starve the rest:

* the first half is for everyone;
* the third quarter is for requests that are still small (`small_bytes`), whatever the large ones do;
* the last quarter belongs to one request at a time, which may take all that it needs. This keeps
  large requests from waiting for each other in the middle of their frames.

A connection that finds no memory is not read until some is free; addresses are served in turn.
While any request waits, those that stall are closed: first those of the address that holds most, then
the most overdue. A request stalls when none of its bytes arrive for `SILENCE_S`, when it arrives
slower than `RATE_BYTES_PER_S`, or when it has waited for something (data, say) for `WORK_S`. One whose
records wait for their thread does not stall: the client has done its part.

Invariant: `used <= bytes_max`.
Invariant: while any request waits, the last quarter is held by a request that does not wait, so it
finishes or stalls.
"""

from __future__ import annotations

import asyncio
import enum
import math
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from echoless.broker.network.fair_queue import FairQueue
from echoless.broker.network.waiting_requests import WaitingRequests

FRAMES: Final = 4
"""The size of the budget, in frames of the largest size."""
SMALL_PART: Final = 32
"""A request is small up to this part of the largest frame: 3.1 MiB of 100, ..."""
SMALL_BYTES: Final = 2 * 1024 * 1024
"""... or up to this, if that is more and at most a quarter of the largest frame."""
SILENCE_S: Final = 0.5
RATE_BYTES_PER_S: Final = 1024 * 1024
WORK_S: Final = 1.0
SWEEP_INTERVAL_S: Final = 0.1
"""Interval of the look for stalled requests while others wait."""


class _Phase(enum.Enum):
    """The phases of a reservation."""

    RECEIVING = enum.auto()
    WAITING = enum.auto()
    WORKED_ON = enum.auto()
    PROCESSED = enum.auto()
    """Complete, and nothing but this broker's own work is missing."""
    RELEASED = enum.auto()


class Reservation:
    """The memory of one large request. Made by `MemoryBudget.begin`."""

    __slots__ = (
        "_began_s",
        "_budget",
        "_give_up",
        "_on_granted",
        "_phase",
        "_progressed_s",
        "_received",
        "_waits_since_s",
        "address",
        "extra",
        "held",
        "wanted",
    )

    def __init__(
        self, budget: MemoryBudget, address: str, give_up: Callable[[str], None], now_s: float
    ) -> None:
        self.address = address
        self.held = 0
        """Bytes reserved so far."""
        self.extra = 0
        """Bytes of them that come from the last quarter."""
        self.wanted = 0
        """Bytes it will hold once the requested step is granted."""
        self._budget = budget
        self._give_up = give_up
        self._on_granted: Callable[[], None] | None = None
        self._phase = _Phase.RECEIVING
        self._began_s = self._progressed_s = self._waits_since_s = now_s
        self._received = 0

    def grow(self, size: int, on_granted: Callable[[], None]) -> bool:
        """Grows to `size` bytes and returns True, or waits and calls `on_granted` once it has."""
        assert self._phase is _Phase.RECEIVING, f"a request grows while it is {self._phase.name}"
        self.wanted = size
        if self._budget.take(self):
            return True
        self._phase, self._on_granted = _Phase.WAITING, on_granted
        self._waits_since_s = self._budget.now_s()
        self._budget.queue(self)
        return False

    def granted(self) -> None:
        """Resumes receiving; the time spent waiting does not count."""
        now_s = self._budget.now_s()
        self._phase, self._progressed_s = _Phase.RECEIVING, now_s
        self._began_s += now_s - self._waits_since_s
        on_granted, self._on_granted = self._on_granted, None
        assert on_granted is not None
        on_granted()

    def progressed(self, count: int, now_s: float) -> None:
        """`count` more bytes of the frame have arrived."""
        self._received += count
        self._progressed_s = now_s

    def work(self) -> None:
        """Notes that the frame is complete and that the request still needs its memory."""
        self._phase, self._progressed_s = _Phase.WORKED_ON, self._budget.now_s()

    def process(self) -> None:
        """Notes that the frame is complete and waits for nothing but this broker: it cannot stall."""
        self._phase = _Phase.PROCESSED

    def release(self) -> None:
        """Releases everything; does nothing if already released."""
        if self._phase is not _Phase.RELEASED:
            self._phase, self._on_granted = _Phase.RELEASED, None
            self._budget.give_back(self)

    def due_s(self) -> float | None:
        """When it counts as stalled; None while it waits."""
        if self._phase is _Phase.WORKED_ON:
            return self._progressed_s + WORK_S
        if self._phase is not _Phase.RECEIVING:
            return None
        slow_s = self._began_s + SILENCE_S + self._received / RATE_BYTES_PER_S
        return min(self._progressed_s + SILENCE_S, slow_s)

    def take_back(self) -> None:
        """Closes the connection in favour of the requests that wait."""
        if self._phase is _Phase.WORKED_ON:
            reason = f"a request of {self.held} bytes waits for more than {WORK_S:g} s"
        else:
            reason = f"a large request has stalled after {self._received} bytes"
        self.release()
        self._give_up(f"{reason}, and others wait for its memory")


class MemoryBudget:
    """The memory of all large requests. Single owner: the event loop."""

    def __init__(
        self,
        frame_bytes_max: int,
        *,
        now_s: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """`call_later` defaults to the running event loop's."""
        self.frame_bytes_max = frame_bytes_max
        self.bytes_max = FRAMES * frame_bytes_max
        self.small_bytes = max(
            frame_bytes_max // SMALL_PART, min(frame_bytes_max // 4, SMALL_BYTES)
        )
        self.waiting = WaitingRequests(frame_bytes_max)
        """Small requests waiting for their answers; not part of this budget."""
        self.used = 0
        self.evicted_total = 0
        """Connections closed because others waited for the memory of their request."""
        self.now_s = now_s
        self._call_later = call_later
        self._reservations: dict[Reservation, None] = {}
        self._held_by_address: defaultdict[str, int] = defaultdict(int)
        self._extra_holder: Reservation | None = None
        """The request that may use the last quarter."""
        self._small: FairQueue[Reservation] = FairQueue()
        self._large: FairQueue[Reservation] = FairQueue()
        self._is_serving = False
        self._is_sweep_due = False
        self._swept_s = -math.inf

    def begin(self, address: str, give_up: Callable[[str], None]) -> Reservation:
        """The reservation for a request that begins to arrive; it holds nothing yet.

        `give_up` closes its connection and is given the reason.
        """
        reservation = Reservation(self, address, give_up, self.now_s())
        self._reservations[reservation] = None
        return reservation

    @property
    def is_awaited(self) -> bool:
        """Whether any request waits for memory."""
        return bool(self._small) or bool(self._large)

    def held_by(self, address: str) -> int:
        """Bytes held by the requests of an address."""
        return self._held_by_address.get(address, 0)

    # --- called by reservations ---

    def take(self, one: Reservation) -> bool:
        """Grants `one` what it wants if there is room."""
        size = one.wanted - one.held
        if not self._fits(one, size):
            if self._extra_holder is None:
                self._extra_holder = one
            if self._extra_holder is not one:
                return False
            one.extra += size
        one.held += size
        self.used += size
        assert self.used <= self.bytes_max, f"{self.used} bytes of request memory are taken"
        self._held_by_address[one.address] += size
        return True

    def queue(self, one: Reservation) -> None:
        """Queues `one` until there is room."""
        (self._small if self._is_small(one) else self._large).push(one)
        self._plan_sweep()

    def give_back(self, one: Reservation) -> None:
        """Takes back what `one` holds and serves the waiting requests."""
        del self._reservations[one]
        self._small.discard(one)
        self._large.discard(one)
        self.used -= one.held
        self._held_by_address[one.address] -= one.held
        if not self._held_by_address[one.address]:
            del self._held_by_address[one.address]
        one.held = one.extra = 0
        if self._extra_holder is one:
            self._extra_holder = None
        self._serve()

    # --- granting memory and taking it back ---

    def _is_small(self, one: Reservation) -> bool:
        return one.wanted <= self.small_bytes

    def _fits(self, one: Reservation, size: int) -> bool:
        """Whether there is room outside the last quarter."""
        extra = 0 if self._extra_holder is None else self._extra_holder.extra
        quarters = 3 if self._is_small(one) else 2
        return self.used - extra + size <= quarters * self.frame_bytes_max

    def _serve(self) -> None:
        """Grants memory to the waiting requests, as far as it goes."""
        if self._is_serving:
            return  # called from a callback of the loop below, which sees what has changed
        self._is_serving = True
        try:
            while (one := self._next_served()) is not None:
                one.granted()
        finally:
            self._is_serving = False

    def _next_served(self) -> Reservation | None:
        for queue in (self._small, self._large):
            one = queue.head()
            if one is not None and self.take(one):
                queue.serve(one)
                return one
        return None

    def sweep(self) -> None:
        """Closes stalled requests while any wait, and schedules itself again if they still do."""
        self._is_sweep_due = False
        self._swept_s = now_s = self.now_s()
        for one in self._stalled(now_s):
            if not self.is_awaited:
                return
            # A request that is still small gives way only to other small ones.
            if self._small or one.held > self.small_bytes or one is self._extra_holder:
                self.evicted_total += 1
                one.take_back()
        if self.is_awaited:
            self._plan_sweep()

    def _plan_sweep(self) -> None:
        """Schedules `sweep` for now, unless it has just run."""
        if not self._is_sweep_due:
            self._is_sweep_due = True
            delay_s = max(self._swept_s + SWEEP_INTERVAL_S - self.now_s(), 0.0)
            call_later = self._call_later or asyncio.get_running_loop().call_later
            call_later(delay_s, self.sweep)

    def _stalled(self, now_s: float) -> list[Reservation]:
        """The requests past their deadline: the address that holds most first, then the most overdue."""
        late = [
            (-self._held_by_address[one.address], due_s, number, one)
            for number, one in enumerate(self._reservations)
            if one.held and (due_s := one.due_s()) is not None and due_s <= now_s
        ]
        return [one for *_, one in sorted(late)]
