"""A scenario: a name, what it shows, and the play itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from echoless.testkit.scenarios.stage import Stage
from echoless.testkit.scenarios.verdict import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One flow of the protocol."""

    name: str
    shows: str
    """One sentence."""
    faults: str
    """The faults, in words."""
    holds: str
    """The promise that must hold at the end."""
    play: Callable[[Stage], None]
    brokers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the brokers."""
    users: tuple[str, ...] = ()
    """Users of brokers that ask their clients to log in; the producer is the first of them."""
    expected: Outcome = Outcome.ONCE
