"""The file of a recording: a line for each event, as `/decisions?follow=true&requests=true` has them (`docs/record.md`).

The first line says what the file is. Requests come before what was decided about them, with the same connection and
correlation id; a broker that restarts begins to count anew, which the lines show (`echoless.diagram.lives`).
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from echoless.client.software import software_fields

FORMAT: Final = 1
Event = dict[str, Any]


class RecordingError(Exception):
    """A file that is no recording, or a recording that cannot be played. Names the file and the line."""


class RecordingFile:
    """A recording that is being written. Thread-safe."""

    def __init__(self, path: Path, *, with_records: bool) -> None:
        """Opens the file; what it holds is kept until `begin`, or the first event. Raises `OSError`."""
        self.counts: Counter[str] = Counter()
        """The number of events of each kind."""
        self.failure: OSError | None = None
        """Why an event could not be written."""
        self._lock = threading.Lock()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        self._file: TextIO = os.fdopen(descriptor, "w", encoding="utf-8")
        self._with_records = with_records
        self._has_begun = False

    def begin(self) -> None:
        """Replaces what the file holds by the first line, once. Raises `OSError`."""
        with self._lock:
            self._begin()

    def add(self, event: Event) -> None:
        """Writes one event, at once: a recording may be cut off at any time. Raises `OSError`."""
        with self._lock:
            self.counts[event["event"]] += event.get("count", 1)
            try:
                self._begin()
                self._write(event)
            except OSError as error:
                self.failure = error
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file.truncate(0)
        head = {
            "event": "recording",
            "format": FORMAT,
            "echoless": software_fields()["client_software_version"],
            "time_ms": time.time_ns() // 1_000_000,
            "records": self._with_records,
        }
        self._write(head)

    def _write(self, event: Event) -> None:
        self._file.write(json.dumps(event, separators=(",", ":")) + "\n")
        self._file.flush()


def read_events(path: Path) -> Iterator[Event]:
    """Yields the events behind the first line. Raises `RecordingError`.

    The last line, if it was cut off, is left out.
    """
    try:
        with path.open(encoding="utf-8") as file:
            lines = enumerate(file, 1)
            _check_head(path, _parsed(path, *next(lines, (1, ""))))
            for number, line in lines:
                if line.endswith("\n"):
                    yield _parsed(path, number, line)
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path}: {error}") from error


def _parsed(path: Path, number: int, line: str) -> Event:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise RecordingError(f"{path}, line {number}: {error}") from error
    if not isinstance(event, dict) or "event" not in event:
        raise RecordingError(f"{path}, line {number}: not an event; echoless record writes them")
    return event


def _check_head(path: Path, head: Event) -> None:
    if head["event"] != "recording":
        raise RecordingError(
            f"{path}: begins with a {head['event']}, not as a recording; echoless record writes one"
        )
    if head.get("format") != FORMAT:
        raise RecordingError(
            f"{path}: has format {head.get('format')}, this version reads {FORMAT}; use the echoless that wrote it"
        )
