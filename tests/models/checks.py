"""The checks: a model, its flags, and whether it holds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One run of a model. Its flags are described in the model."""

    name: str
    model: str
    flags: tuple[str, ...]
    holds: bool
    """False: there has to be a counterexample."""
    is_quick: bool = True
    """Whether it takes about a second."""


def _connections(name: str, *flags: str, holds: bool, connections: int = 3) -> Check:
    """A check of the order of connections; more than three of them take minutes."""
    return Check(
        name=f"{name}, {connections} connections",
        model="endtxn.pml",
        flags=(f"NC={connections}", *flags),
        holds=holds,
        is_quick=connections == 3,
    )


def _markers(name: str, *flags: str, holds: bool, is_quick: bool = True) -> Check:
    return Check(name=name, model="markers.pml", flags=flags, holds=holds, is_quick=is_quick)


CHECKS: Final = (
    _connections("the first generation without a rule", "RULE=0", holds=False),
    _connections("the second needs none", "TV2=1", "RULE=0", "MOVES=2", holds=True),
    _connections("the order of connections", "RULE=1", holds=True),
    _connections(
        "the same, and the coordinator moves away and back", "RULE=1", "MOVES=2", holds=False
    ),
    _connections("connections older than the election, without an order", "RULE=3", holds=False),
    _connections("both rules", "RULE=2", "MOVES=2", holds=True),
    _connections("both rules", "RULE=2", "MOVES=2", holds=True, connections=4),
    _connections("both rules", "RULE=2", "MOVES=2", holds=True, connections=5),
    _markers("numbers, high watermark and guard", holds=True),
    _markers("the same for three transactions", "TXNS=3", "MOVES=3", holds=True, is_quick=False),
    _markers(
        "a late marker ends the next transaction without numbers",
        "NUMBERS=0",
        "WATCH=1",
        holds=False,
    ),
    _markers(
        "above the high watermark, the coordinator moves twice", "HW=0", "WATCH=2", holds=False
    ),
    _markers("the same, and it moves once", "HW=0", "WATCH=2", "MOVES=1", holds=True),
    _markers("a transaction stays open above the high watermark", "HW=0", "WATCH=3", holds=False),
    _markers("a transaction stays open without the guard", "GUARD=0", "WATCH=3", holds=False),
    _markers("an answer that counts after a marker", "GUARD=1", "WATCH=3", holds=False),
)
