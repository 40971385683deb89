"""The effects of a group coordinator: those that every coordinator has, and those of the consumer protocol."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from echoless.coordinators.effects import AppendRecords, CancelTimer, LogLine, Reply, SetTimer
from echoless.coordinators.groups.answers import GroupAnswer
from echoless.coordinators.groups.consumer.requests import MayDescribe


class TimerKind(enum.Enum):
    REBALANCE = "rebalance"
    """The join phase: the initial delay, or the wait for members to rejoin."""
    SYNC = "sync"
    SESSION = "session"
    PENDING_MEMBER = "pending member"
    """A member id was handed out (79); it is forgotten if no one joins with it."""

    REVOCATION = "revocation"
    """A member of the consumer protocol has to give up partitions."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str
    member_id: str = ""


class ResolveRegex(NamedTuple):
    """Find the topics that a regular expression matches; `RegexResolved` follows. The expression is valid."""

    group_id: str
    pattern: str
    may_describe: MayDescribe
    client_host: str
    """The host of the member, in whose turns the work is done."""


class MakeTarget(NamedTuple):
    """Take the steps in which a target is made, and serve others in between; `TargetMade` follows."""

    group_id: str
    steps: Iterator[None]


GroupEffect = (
    AppendRecords
    | Reply[GroupAnswer]
    | SetTimer[TimerKey]
    | CancelTimer[TimerKey]
    | LogLine
    | ResolveRegex
    | MakeTarget
)

Effects = list[GroupEffect]
"""The effects of one step, or of a part of it, in order. The receiver of a list may add to it."""


def replied(reply_id: int | None, answer: GroupAnswer) -> Effects:
    """Answer a request; None is one that no one waits for."""
    return [] if reply_id is None else [Reply(reply_id, answer)]
