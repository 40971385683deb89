"""Records decisions and faults while a scenario plays, over kills and restarts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Final

from echoless.testkit.recorder import Recorder

Event = dict[str, Any]


_LAST: Final = 1000
"""A broker that has just started may have decided something before it could be queried."""


class PlayRecorder:
    """One `Recorder` for each start of a broker, and the scenario's own notes."""

    def __init__(self) -> None:
        self._recorders: list[Recorder] = []
        self._notes: list[Event] = []
        self._left_out: list[Event] = []
        self._stack = ExitStack()

    def follow(self, address: str) -> None:
        """Records every decision of the broker at the admin address from now on, until it exits."""
        self._recorders.append(self._stack.enter_context(Recorder([address], last=_LAST)))

    def note(self, text: str, topic: str) -> None:
        """Adds a step of the scenario between the events before and after it."""
        self.settle()
        now_ms = time.time_ns() // 1_000_000
        self._notes.append({"event": "note", "time_ms": now_ms, "text": text, "topic": topic})

    def leave_out(self, topic: str) -> None:
        """Excludes the events about the topic so far from the story."""
        self.settle()
        self._left_out += self.events({topic})

    def settle(self) -> None:
        """Returns when everything that running brokers know of has been recorded."""
        for recorder in self._recorders:
            if not recorder.has_ended:
                recorder.settle()

    def close(self) -> None:
        self._stack.close()

    def events(self, topics: set[str]) -> list[Event]:
        """The events about the topics, ordered by time."""
        found = [event for recorder in self._recorders for event in recorder.events]
        found = sorted(self._notes + found, key=lambda event: int(event["time_ms"]))
        return about(found, topics)

    def story(self, topics: set[str]) -> list[Event]:
        """The same without the excluded ones."""
        return [event for event in self.events(topics) if event not in self._left_out]


def about(events: Iterable[Event], topics: set[str]) -> list[Event]:
    """Events about the topics, and events without a topic."""
    return [event for event in events if _is_about(event, topics)]


def _is_about(event: Event, topics: set[str]) -> bool:
    if "topic" in event:
        return event["topic"] in topics
    about = event.get("transactional_id") or event.get("about")
    if about:
        return str(about).startswith(tuple(topics))
    batches = event.get("batches")
    return not batches or any(batch["topic"] in topics for batch in batches)
