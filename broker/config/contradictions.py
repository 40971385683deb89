"""Rules that involve more than one setting of a broker. Asked at the start, and when settings change later. Pure."""

from __future__ import annotations

from typing import NamedTuple

from echoless.broker.config.names import Config


class Contradiction(NamedTuple):
    """Settings that cannot be in force together; `problem` begins with the name of the first."""

    names: frozenset[str]
    problem: str


def contradiction(config: Config) -> Contradiction | None:
    """The first rule that the values break."""
    if config.message_max_bytes > config.request_size_max:
        return Contradiction(
            frozenset({"message_max_bytes"}),
            f"message_max_bytes: takes at most request_size_max ({config.request_size_max}), "
            f"not {config.message_max_bytes}",
        )
    return None
