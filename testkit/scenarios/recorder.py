"""What brokers decided and which faults struck, recorded while a scenario plays.

One thread per start of a broker reads its `/decisions` stream: what a broker decided before it was
killed has already been read.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final

from testkit.admin import Admin, AdminError

Event = dict[str, Any]
_CAUGHT_UP_S: Final = 10.0
_ASK_AGAIN_S: Final = 0.01


class Recorder:
    """Events of any number of brokers. `note` adds the scenario's own words to them."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def follow(self, address: str) -> None:
        """Everything that the broker at the admin address decides from now on, until it ends."""
        threading.Thread(target=self._follow, args=[address], daemon=True).start()

    def note(self, text: str) -> None:
        """A step of the scenario, between the events before it and those behind it."""
        self._add({"event": "note", "time_ms": time.time_ns() // 1_000_000, "text": text})

    def catch_up(self, address: str) -> None:
        """Returns when every event that the broker knows of has been recorded."""
        deadline = time.monotonic() + _CAUGHT_UP_S
        known = Admin(address).get("/decisions", n=1)
        latest = [one["number"] for one in known["decisions"] + known.get("faults", [])]
        while latest and time.monotonic() < deadline:
            with self._lock:
                if any(event.get("number", -1) >= max(latest) for event in self._events):
                    return
            time.sleep(_ASK_AGAIN_S)

    def events(self, topics: set[str] | None = None) -> list[Event]:
        """In the order of their times; of the topics alone, where some are given."""
        with self._lock:
            events = sorted(self._events, key=lambda event: event["time_ms"])
        return [event for event in events if topics is None or _is_about(event, topics)]

    def _follow(self, address: str) -> None:
        with contextlib.suppress(AdminError):
            for event in Admin(address).follow_decisions(n=0):
                if event["event"] != "lost":
                    self._add(event)

    def _add(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)


def _is_about(event: Event, topics: set[str]) -> bool:
    if "topic" in event:
        return event["topic"] in topics
    batches = event.get("batches")
    return not batches or any(batch["topic"] in topics for batch in batches)
