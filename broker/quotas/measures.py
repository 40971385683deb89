"""The measures of use that are in memory, each held for the sharer that has begun it (`broker/network/sharer.py`).

Client ids are chosen by clients, so the number of measures is bounded; but one whose use still counts is never forgotten.
When there are many, a sharer that has begun more than its share has to count what it begins further together (`Quotas`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

MEASURES_MAX: Final = 20_000
"""Measures of one kind that one sharer may hold; several share them."""
CLIENTS_PER_SWEEP: Final = 64
LOOKED_AT: Final = 256
"""Old measures that are looked at after so many clients that were not remembered: no request pays for all of them."""


class Measure(Protocol):
    """The use of late."""

    def is_unused(self, now: float) -> bool: ...


Held = TypeVar("Held", bound=Measure)


class Measures(Generic[Held]):
    """Measures of one kind, by what they count.

    Invariant: of n sharers each holds what it began while it had fewer than MEASURES_MAX / n, and one in any case. So
    there are about MEASURES_MAX x (1 + ln n) at most, or n.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[Hashable, tuple[Held, str]] = OrderedDict()
        """With the sharer; the ones that were looked at longest ago first."""
        self._shares: dict[str, int] = {}
        self._clients = 0

    def __len__(self) -> int:
        return len(self._held)

    def find(self, counted: Hashable) -> Held | None:
        """The measure; None if there is none."""
        found = self._held.get(counted)
        return None if found is None else found[0]

    def has_room_for(self, sharer: str) -> bool:
        """Whether the sharer may begin one more measure of its own."""
        share = self._shares.get(sharer, 0)
        return not share or share < MEASURES_MAX // len(self._shares)

    def begin(self, counted: Hashable, sharer: str, measure: Held) -> None:
        """Holds a new measure."""
        self._held[counted] = measure, sharer
        self._shares[sharer] = self._shares.get(sharer, 0) + 1

    def sweep(self, now: float) -> bool:
        """Forgets, now and then, some that know no more than new ones; returns whether any was forgotten.

        To be called for each client whose measures are looked up.
        """
        self._clients += 1
        if self._clients < CLIENTS_PER_SWEEP:
            return False
        self._clients, before = 0, len(self._held)
        for _ in range(min(LOOKED_AT, before)):
            counted, (measure, sharer) = next(iter(self._held.items()))
            if measure.is_unused(now):
                del self._held[counted]
                self._give_back(sharer)
            else:
                self._held.move_to_end(counted)
        return len(self._held) < before

    def _give_back(self, sharer: str) -> None:
        self._shares[sharer] -= 1
        if not self._shares[sharer]:
            del self._shares[sharer]
