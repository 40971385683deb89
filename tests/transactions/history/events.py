"""A history of transactions, as their clients saw it. Values are unique over a whole history. Pure.

Times are seconds of one clock, for all processes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[str, int]
"""A topic and the index of a partition."""


class Outcome(enum.Enum):
    """The end of a transaction, as its process knows it."""

    OK = "committed"
    FAILED = "aborted"
    UNKNOWN = "committed or aborted"


class Sent(NamedTuple):
    """One record that a transaction sent. `source` is the value of the record that it was made from, if any."""

    place: Place
    value: str
    offset: int | None = None
    """By its acknowledgement; None without one."""
    source: str | None = None


class Seen(NamedTuple):
    """One record that a reader of committed records was given."""

    place: Place
    offset: int
    value: str
    at: float


@dataclass(slots=True, kw_only=True)
class Transaction:
    """One transaction of one instance of a producer (`process`)."""

    process: str
    name: str
    sent: list[Sent] = field(default_factory=list)
    """In the order of the calls."""
    seen: list[Seen] = field(default_factory=list)
    """Records that it read before it ended."""
    outcome: Outcome = Outcome.UNKNOWN
    began: float = 0.0
    committing: float | None = None
    """The time of its call for a commit; None if it never called."""


class Stored(NamedTuple):
    """One record of the log of a partition, with the marker that ended its transaction."""

    offset: int
    value: str
    is_committed: bool | None
    """None while its transaction is open."""


@dataclass(slots=True, kw_only=True)
class History:
    """Everything that was seen until nothing happened any more."""

    transactions: list[Transaction] = field(default_factory=list)
    """Those of one process in their order."""
    readers: Mapping[str, Sequence[Seen]] = field(default_factory=dict)
    """By process, in order of reading; each began at the first offset of every partition that it read."""
    final: Mapping[Place, Sequence[tuple[int, str]]] = field(default_factory=dict)
    """Offsets and values that a reader of committed records finds at the end, in order."""
    log: Mapping[Place, Sequence[Stored]] | None = None
    """The records in the files, in order, aborted ones as well; None where nobody looked."""
    inputs: Mapping[Place, int] = field(default_factory=dict)
    """The group's committed offset at the end, for each partition that is copied within transactions."""
