"""The contract between a coordinator and the shell that drives it.

A coordinator keeps its state in one partition of an internal topic. It is pure: it is given records, events and the time,
and returns effects. The shell (`broker/state_topics/shard.py`) reads the log, carries the effects out and makes the events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from echoless.coordinators.events import Now
from echoless.coordinators.recovery import Recovery


class CoordinatorCore(Protocol):
    """The core of one shard. Its events and effects are those of `events.py` and `effects.py`, and some of its own."""

    def apply(self, key: bytes, value: bytes | None) -> str | None:
        """Replays a record of the log; a value of None is a tombstone.

        Returns why the record was skipped, None if it was not. Raises `DecodeError` if it cannot be read: what it
        replaces is out of date.
        """

    def start(self, now: Now) -> Iterator[list[Any]]:
        """Begins to serve, once everything has been replayed; effects come item by item. Raises `DecodeError`."""

    def step(self, event: Any, now: Now) -> list[Any]:
        """Processes one event. An exception is a bug: the state may be half changed."""

    def recover(self, event: Any, now: Now) -> Recovery | None:
        """Drops what `event`, with which `step` has just raised, may have half changed. Returns what is left to do.

        Returns None, or raises, if that is unknown: then the core is made again from the log.
        """
