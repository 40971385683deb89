"""The events that every coordinator has. The shell makes them, in the order in which they happen."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from echoless.protocol.errors import ErrorCode

Request = TypeVar("Request")
Key = TypeVar("Key")


class Now(NamedTuple):
    """The time of an event. Timers and sessions follow the monotonic clock; what is stored, the wall clock."""

    monotonic_ms: int
    wall_ms: int


class Requested(NamedTuple, Generic[Request]):
    """A request came in. Exactly one `Reply` with its `reply_id` follows, now or later."""

    reply_id: int
    request: Request


class Abandoned(NamedTuple):
    """The connection of a request that has not been answered has ended. Its `Reply`, if any comes, is dropped."""

    reply_id: int


class TimerFired(NamedTuple, Generic[Key]):
    """The time of a `SetTimer` has come. A late one, of a timer that was cancelled meanwhile, does no harm."""

    key: Key


class AppendCommitted(NamedTuple):
    """The high watermark has passed the records of an `AppendRecords`, in the order of the appends.

    It also follows an `AppendFailed` with `may_commit`, once that happens.
    """

    token: int


class TransactionEnded(NamedTuple):
    """The high watermark has passed a producer's marker, and `AppendCommitted` was sent for all that comes before it."""

    producer_id: int
    is_commit: bool


class AppendFailed(NamedTuple):
    """An `AppendRecords` was refused, or did not become committed in time.

    With `may_commit` the records are in the log, and `AppendCommitted` may follow. Without it they never will be.
    """

    token: int
    error_code: ErrorCode
    """The code with which a produce request would be answered: 6, 7, 10, 18, 19, 20, 56..."""
    may_commit: bool = False
