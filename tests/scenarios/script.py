"""The files: prose, commands and what they show. Pure text in, pure text out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

COMMAND: Final = "> "
PROSE: Final = "#"

Player = Callable[[str], list[str]]
"""Carries out one command and returns what it shows."""


def replay(script: str, player: Player) -> str:
    """The script with what its commands show now; all else stays as it is."""
    return "".join(f"{line}\n" for line in _replayed(script, player))


def _replayed(script: str, player: Player) -> Iterator[str]:
    is_output = False
    for line in script.splitlines():
        if line.startswith(COMMAND):
            yield line
            yield from player(line.removeprefix(COMMAND))
            is_output = True
        elif not line or line.startswith(PROSE):
            yield line
            is_output = False
        elif not is_output:
            raise ValueError(f"neither prose nor a command nor what one shows: {line!r}")
