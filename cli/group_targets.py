"""The options of `echoless groups reset-offsets`: which partitions, and where to."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from echoless.broker.config.values import duration
from echoless.cli.consumption.starts import StartPosition, read_start
from echoless.cli.errors import CommandError

_TOPIC: Final = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?")
_BACK: Final = duration(1)


class OffsetTarget(NamedTuple):
    """One of two: a place in the log, or a distance from what is committed."""

    start: StartPosition | None = None
    by: int | None = None


def read_target(to: str | None, back: str | None, by: int | None) -> OffsetTarget:
    """Raises `CommandError` unless exactly one is given."""
    if sum(one is not None for one in (to, back, by)) != 1:
        raise CommandError("pass one of --to, --back and --by")
    if by is not None:
        return OffsetTarget(by=by)
    if to is not None:
        return OffsetTarget(read_start(to))
    assert back is not None
    try:
        back_ms = _BACK.read(back)
    except ValueError as error:
        raise CommandError(f"--back: {error}") from error
    return OffsetTarget(StartPosition(timestamp_ms=int(time.time() * 1000) - back_ms))


def read_topics(texts: Sequence[str]) -> dict[str, set[int] | None]:
    """Topics, each with the partitions that are named, None for all. Raises `CommandError`."""
    topics: dict[str, set[int] | None] = {}
    for text in texts:
        found = _TOPIC.fullmatch(text)
        if found is None:
            raise CommandError(f"--topic: takes TOPIC or TOPIC:PARTITION,..., not {text!r}")
        topics[found[1]] = {int(one) for one in found[2].split(",")} if found[2] else None
    return topics
