"""The effects of an event. The shell carries them out in the order given, without awaiting in between."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

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


class GroupRecord(NamedTuple):
    """A record of `__consumer_offsets`. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Append(NamedTuple):
    """Append these records, all of them in one batch; others may share it. `Committed` or `AppendFailed` follows.

    Tokens rise, and records are appended in their order.
    """

    token: int
    records: tuple[GroupRecord, ...]


class Reply(NamedTuple):
    """Answer a request, now: everything that the answer depends on is committed."""

    reply_id: int
    answer: GroupAnswer


class SetTimer(NamedTuple):
    """Send `TimerFired` at that monotonic time; replaces the timer of the same key."""

    key: TimerKey
    at_ms: int


class CancelTimer(NamedTuple):
    key: TimerKey


class Note(NamedTuple):
    """A line for the log."""

    message: str


class ResolveRegex(NamedTuple):
    """Find the topics that a regular expression matches; `RegexResolved` follows. The expression is valid."""

    group_id: str
    pattern: str
    may_describe: MayDescribe


class Assign(NamedTuple):
    """Take the steps in which a target is made, and serve others in between; `Assigned` follows."""

    group_id: str
    steps: Iterator[None]


Effect = Append | Reply | SetTimer | CancelTimer | Note | ResolveRegex | Assign
