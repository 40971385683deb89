"""Everything that clients of transactions saw, and how often what happened. Plain records, judged afterwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.observations import Observations
from tests.transactions.history.events import Seen, Transaction


class Identity(NamedTuple):
    """A producer id with its epoch, as a coordinator has given it."""

    producer_id: int
    epoch: int


class Given(NamedTuple):
    """An identity that a client was given."""

    transactional_id: str
    process: str
    """The instance of a producer that has it from now on."""
    identity: Identity
    asked_at: float
    at: float
    is_new: bool
    """Whether a new instance asked, which fences all others; else a session goes on."""


@dataclass(slots=True)
class SeenTransactions:
    """All clients' records of one history."""

    observations: Observations
    transactions: list[Transaction] = field(default_factory=list)
    readers: dict[str, list[Seen]] = field(default_factory=dict)
    """Those of committed records."""
    uncommitted: dict[str, list[Seen]] = field(default_factory=dict)
    """Readers of all records."""
    given: list[Given] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    """By name: answers, hazards and transitions."""

    def now(self) -> float:
        return self.observations.clock()

    def count(self, what: str) -> None:
        """Notes that something has happened once more."""
        self.happened[what] += 1
