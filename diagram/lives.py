"""The life of its broker to which an event belongs.

A restarted broker counts its events and its connections from 1 again: a number that does not grow
marks a new life, and connections are the same only within one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Event = Mapping[str, Any]

Connection = tuple[int, int, int]
"""Broker id, the broker's life, connection id."""


def with_lives(events: Iterable[Event]) -> Iterator[Event]:
    """The same events, each with its `life`: 0 for the first one that was recorded."""
    lives: dict[int, int] = {}
    latest: dict[int, int] = {}
    for event in events:
        broker, number = event.get("broker_id", 0), event.get("number")
        if number is not None:
            if number <= latest.get(broker, 0):
                lives[broker] = lives.get(broker, 0) + 1
            latest[broker] = number
        yield {**event, "life": lives.get(broker, 0)}


def connection_of(event: Event) -> Connection:
    """The connection that a request came by."""
    return event.get("broker_id", 0), event["life"], event["connection_id"]
