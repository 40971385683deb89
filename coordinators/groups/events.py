"""The events of a group coordinator: those that every coordinator has, and those of the consumer protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Requested,
    TimerFired,
    TransactionEnded,
)
from echoless.coordinators.groups.effects import TimerKey
from echoless.coordinators.groups.requests import GroupRequest


class RegexResolved(NamedTuple):
    """The topics that a regular expression matches, all of the name, that the client may describe."""

    group_id: str
    pattern: str
    topics: tuple[str, ...]
    """In order."""
    version: int
    """The version of the topics that were looked at."""


class TargetMade(NamedTuple):
    """All steps of a `MakeTarget` were taken."""

    group_id: str
    steps: Iterator[None]


GroupEvent = (
    Requested[GroupRequest]
    | Abandoned
    | TimerFired[TimerKey]
    | AppendCommitted
    | AppendFailed
    | TransactionEnded
    | RegexResolved
    | TargetMade
)
