"""The events of a group coordinator. The shell makes them, in the order in which they happen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from echoless.coordinators.groups.effects import TimerKey
from echoless.coordinators.groups.requests import GroupRequest
from echoless.protocol.errors import ErrorCode


class Now(NamedTuple):
    """The time of an event. Timers and sessions follow the monotonic clock; what is stored, the wall clock."""

    monotonic_ms: int
    wall_ms: int


class Requested(NamedTuple):
    """A request came in. Exactly one `Reply` with its `reply_id` follows, now or later."""

    reply_id: int
    request: GroupRequest


class Abandoned(NamedTuple):
    """The connection of a request that has not been answered has ended. Its `Reply`, if any comes, is dropped."""

    reply_id: int


class TimerFired(NamedTuple):
    """The time of a `SetTimer` has come. A late one, of a timer that was cancelled meanwhile, does no harm."""

    key: TimerKey


class Committed(NamedTuple):
    """The high watermark has passed the records of an `Append`, in the order of the appends.

    It also follows an `AppendFailed` with `may_commit`, once that happens.
    """

    token: int


class AppendFailed(NamedTuple):
    """An `Append` was refused, or did not become committed in time.

    With `may_commit` the records are in the log, and `Committed` may follow. Without it they never will be.
    """

    token: int
    error_code: ErrorCode
    """As a produce request would be answered: 6, 7, 10, 18, 19, 20, 56..."""
    may_commit: bool = False


class RegexResolved(NamedTuple):
    """The topics that a regular expression matches, all of the name, that the client may describe."""

    group_id: str
    pattern: str
    topics: tuple[str, ...]
    """In order."""
    version: int
    """The version of the topics that were looked at."""


class Assigned(NamedTuple):
    """All steps were taken."""

    group_id: str
    steps: Iterator[None]


Event = Requested | Abandoned | TimerFired | Committed | AppendFailed | RegexResolved | Assigned
