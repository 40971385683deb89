"""The effects that every coordinator has. The shell carries them out in the order given, without awaiting in between.

A coordinator is pure: it is given an event and the time, and returns effects. What only one coordinator has stands in its
own room, `groups/effects.py` for instance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Answer = TypeVar("Answer")
Key = TypeVar("Key")


class StateRecord(NamedTuple):
    """A record of the coordinator's topic. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


class InTransaction(NamedTuple):
    """The producer in whose transaction records are appended: they count once its marker says so."""

    producer_id: int
    producer_epoch: int
    may_append: Callable[[], bool] | None = None
    """Asked in the step of the append: whether the coordinator's word still holds that the partition is in the transaction."""


class AppendRecords(NamedTuple):
    """Append these records, all of them in one batch; others may share it.

    `AppendCommitted` or `AppendFailed` follows. Tokens rise, and records are appended in their order.
    """

    token: int
    records: tuple[StateRecord, ...]
    batch: bytes | None = None
    """The records as a batch, if it was made beforehand because they are many; then no others share it."""
    transaction: InTransaction | None = None
    """Makes it a batch of the producer's transaction, without a sequence; then no others share it."""


class Reply(NamedTuple, Generic[Answer]):
    """Answer a request, now: everything that the answer depends on is committed."""

    reply_id: int
    answer: Answer


class SetTimer(NamedTuple, Generic[Key]):
    """Send `TimerFired` at that monotonic time; replaces the timer of the same key."""

    key: Key
    at_ms: int


class CancelTimer(NamedTuple, Generic[Key]):
    """Forget the timer of the key, if there is one."""

    key: Key


class LogLine(NamedTuple):
    """A line for the broker's log."""

    message: str
