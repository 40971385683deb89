"""The drivers' side of the line protocol, for Python clients: README.md in this directory."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any, Final, NamedTuple

_OUTPUT: Final = threading.Lock()


class Options(NamedTuple):
    """Arguments of one `open`."""

    bootstrap: str
    request_timeout_ms: int
    linger_ms: int
    delivery_timeout_ms: int
    username: str | None
    """The user to log in by PLAIN; None: no log-in."""
    password: str | None


class Records(NamedTuple):
    """Arguments of one `send`."""

    topic: str
    partition: int
    numbers: range


def say(event: str, **fields: Any) -> None:
    """Prints one line, from any thread."""
    line = json.dumps({"event": event, **fields})
    with _OUTPUT:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def say_done(
    records: Records, number: int, *, offset: int | None = None, error: str | None = None
) -> None:
    """Reports the outcome of one record."""
    place = {"topic": records.topic, "partition": records.partition, "number": number}
    if error is None:
        say("acked", **place, offset=-1 if offset is None or offset < 0 else offset)
    else:
        say("failed", **place, error=error)


def read_options(words: list[str]) -> Options:
    """Reads the words after `open`."""
    given = dict(word.split("=", 1) for word in words)
    return Options(
        given["bootstrap"],
        int(given["request_timeout_ms"]),
        int(given["linger_ms"]),
        int(given["delivery_timeout_ms"]),
        given.get("username"),
        given.get("password"),
    )


def read_records(words: list[str]) -> Records:
    """Reads the words after `send`."""
    topic, partition, first, count = words[0], *map(int, words[1:])
    return Records(topic, partition, range(first, first + count))
