"""Decisions as a table that grows: each row is printed when its decision arrives.

So the columns have fixed widths, and longer text is folded within its column. On a narrow terminal each row takes
two lines: what is longest and what is asked for least is on the second.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from echoless.broker.network.request import ANONYMOUS
from echoless.cli.output import console
from echoless.diagram.transaction_wording import places_text

Event = Mapping[str, Any]

_COLUMNS: Final = {
    "time (UTC)": 12,
    "client": 20,
    "producer": 10,
    "partition": 14,
    "sequences": 15,
    "verdict": 12,
    "offset": 8,
    "window before, reason": None,
}
"""Widths; None takes the rest."""
_WIDTH_MIN: Final = 130
"""Below it a row takes two lines."""
_FIRST_LINE: Final = {
    "time (UTC)": 12,
    "client": 14,
    "partition": 14,
    "sequences": 11,
    "verdict": 9,
}
"""The columns of its first line: 70 characters."""
_INDENT: Final = 14
_TO_THE_RIGHT: Final = {"producer", "sequences", "offset"}
_STYLES: Final = {
    "append": "green",
    "duplicate": "yellow",
    "divergent_duplicate": "bold yellow",
    "reject": "bold red",
    "refuse": "bold red",
    "time_out": "bold yellow",
    "fence": "bold yellow",
    "fault": "magenta",
}


def print_growing_table(events: Iterable[Event]) -> None:
    """Ends when the events do."""
    out = console()
    is_narrow = out.width < _WIDTH_MIN
    columns: Mapping[str, int | None] = _FIRST_LINE if is_narrow else _COLUMNS
    _print(out, _row(columns, {name: Text(name, style="bold") for name in columns}))
    for event in events:
        cells = dict(zip(_COLUMNS, _cells(event), strict=True))
        _print(out, _row(columns, cells))
        if is_narrow:
            _print(out, Padding(_second_line(cells), (0, 0, 0, _INDENT)))


def _print(out: Console, row: RenderableType) -> None:
    """Prints at once, and without blanks at the end of lines that are not for a terminal."""
    if out.is_terminal:
        out.print(row)
        return
    with out.capture() as captured:
        out.print(row)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()


def _row(columns: Mapping[str, int | None], cells: Mapping[str, Text]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=None in columns.values())
    for name, width in columns.items():
        table.add_column(
            width=width,
            ratio=1 if width is None else None,
            justify="right" if name in _TO_THE_RIGHT else "left",
            overflow="fold",
        )
    table.add_row(*(cells[name] for name in columns))
    return table


def _second_line(cells: Mapping[str, Text]) -> Text:
    """The rest of a row, each value with its name."""
    named = [Text(f"{name} {cells[name]}") for name in ("producer", "offset") if cells[name].plain]
    explained = [cells["window before, reason"]] if cells["window before, reason"].plain else []
    return Text("  ").join([*named, *explained])


def _cells(event: Event) -> list[Text]:
    match event["event"]:
        case "decision":
            return _decision(event)
        case "fault":
            return _fault(event)
        case "transaction":
            return _transaction(event)
        case _:
            words = f"{event['count']} events were lost: this reader was too slow"
            return [*map(Text, [""] * 5), Text("lost", style="bold red"), Text(""), Text(words)]


def _decision(event: Event) -> list[Text]:
    verdict = event["decision"]
    offset = "" if event["base_offset"] < 0 else str(event["base_offset"])
    return [
        *_origin(event),
        *_batch(event),
        Text(verdict.replace("_", " "), style=_STYLES.get(verdict, "")),
        Text(offset),
        _explanation(event),
    ]


def _fault(event: Event) -> list[Text]:
    batches = event["batches"]
    batch = _batch(batches[0]) if batches else [Text(""), Text(""), Text("")]
    rest = f" and {len(batches) - 1} more batches" if len(batches) > 1 else ""
    about = f" {event['about']}" if event.get("about") else ""
    words = f"{event['action'].replace('_', ' ')} ({event['rule']}) {event['api']}{about}{rest}"
    return [
        *_origin(event),
        *batch,
        Text("fault", style=_STYLES["fault"]),
        Text(""),
        Text(words.rstrip(), style=_STYLES["fault"]),
    ]


def _transaction(event: Event) -> list[Text]:
    step, places = event["step"], places_text(event)
    words = [event["transactional_id"], event["result"] if step not in ("commit", "abort") else ""]
    words += [f"{event['error']}: {event['api']}" if event["error"] else "", event["reason"]]
    return [
        *_origin(event),
        Text(f"{event['producer_id']}:{event['producer_epoch']}"),
        Text(places),
        Text(""),
        Text(step.replace("_", " "), style=_STYLES.get(step, "cyan")),
        Text("" if event["base_offset"] < 0 else str(event["base_offset"])),
        Text(" ".join(word for word in words if word)),
    ]


def _origin(event: Event) -> list[Text]:
    """Time and origin: client id or address, the connection, and the principal if there is one."""
    moment = datetime.datetime.fromtimestamp(event["time_ms"] / 1000, tz=datetime.UTC)
    client = event["client_id"] or event["address"]
    connection = f" #{event['connection_id']}" if event["connection_id"] else ""
    principal = event.get("principal") or ANONYMOUS
    who = "" if principal == ANONYMOUS else f" {principal}"
    time = f"{moment:%H:%M:%S}.{event['time_ms'] % 1000:03d}"
    return [Text(time), Text(f"{client}{connection}{who}")]


def _batch(batch: Event) -> list[Text]:
    return [
        Text(f"{batch['producer_id']}:{batch['producer_epoch']}"),
        Text(f"{batch['topic']}-{batch['partition']}"),
        Text(f"{batch['base_sequence']}-{batch['last_sequence']}"),
    ]


def _explanation(event: Event) -> Text:
    """The window, and the reason unless it was simply appended."""
    words = Text()
    if event["window"] is not None:
        ranges = " ".join(f"{first}-{last}" for first, last in event["window"])
        words.append(f"[{ranges}]", style="dim")
    if event["reason"]:
        error = f"{event['error']}: " if event["error"] else ""
        words.append(f" {error}{event['reason']}")
    return words
