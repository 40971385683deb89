"""The start of `echoless consume`: `--from earliest|latest|OFFSET|TIME`."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from echoless.cli.errors import CommandError

_WORDS = ("earliest", "latest")


class StartPosition(NamedTuple):
    """One of three: an end of the log by name, an offset, or a time in milliseconds."""

    end: str | None = None
    offset: int | None = None
    timestamp_ms: int | None = None

    @property
    def is_an_end(self) -> bool:
        """Whether it needs no partition to mean something; a start that was not given is one, too."""
        return self.offset is None and self.timestamp_ms is None


def read_start(text: str | None) -> StartPosition:
    """Raises `CommandError`."""
    if text is None or text in _WORDS:
        return StartPosition(end=text)
    if text.isascii() and text.isdigit():
        return StartPosition(offset=int(text))
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--from: takes earliest, latest, an offset, or a time like 2026-11-22T14:30:00, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return StartPosition(timestamp_ms=int(moment.timestamp() * 1000))
