"""The output of commands: a table for people, JSON for machines.

Results go to standard output, everything else to standard error, so that `--json | jq` always
works.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints a title and a table, numbers aligned right; text from outside is never markup."""
    rows = [list(row) for row in rows]
    out = console()
    out.print(title, style="bold", soft_wrap=True)
    if not rows:
        return
    table = Table()
    for index, column in enumerate(columns):
        is_number = all(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    out.print(table)


def console(*, stderr: bool = False) -> Console:
    """A console without markup; wide enough for scripts if there is no terminal."""
    width = None if sys.stdout.isatty() or stderr else 200
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=width)


def counted(count: int, noun: str) -> str:
    """The number of things: `1 topic`, `2 topics`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def time_text(timestamp_ms: int) -> str:
    """A timestamp in UTC; `-` if there is none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # beyond the calendar, which a producer is free to send
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
