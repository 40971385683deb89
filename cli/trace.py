"""`echoless trace`: a recorded run as a sequence diagram.

Draws what brokers remember, records from now on, or reads the output of `echoless decisions --json` or
`--record`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from echoless.cli.admin import AdminPorts, admin_ports, refused
from echoless.cli.errors import CommandError
from echoless.cli.options import ADMIN_DEFAULT, AdminAddresses, AdminConfig, AdminTokenFile
from echoless.cli.selection import PartitionFilter, ProducerFilter, TopicFilter

_LOOK_EVERY_S: Final = 0.05
_LAST_MAX: Final = 3000
_LAST_DEFAULT: Final = 200

Event = dict[str, Any]


def trace(  # noqa: PLR0917 - typer makes options of them
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.jsonl]", help="A recorded run instead of a broker; -: stdin."
        ),
    ] = None,
    admin: AdminAddresses = None,
    admin_token_file: AdminTokenFile = None,
    command_config: AdminConfig = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Record from now on, until Ctrl-C.")
    ] = False,
    follow_for: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Record from now on, for so long."),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            *("--last", "-n"),
            min=0,
            max=_LAST_MAX,
            help=f"How many past ones; default: {_LAST_DEFAULT}, or none while recording.",
        ),
    ] = None,
    producer_id: ProducerFilter = None,
    topic: TopicFilter = None,
    partition: PartitionFilter = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture here.")] = None,
    mermaid: Annotated[
        Path | None, typer.Option(help="Write Mermaid text here; fenced where it ends in .md.")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="Write the events here, one a line.")] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print the events, one a line, instead of Mermaid text.")
    ] = False,
    title: Annotated[str, typer.Option(help="Above the picture.")] = "",
) -> None:
    """Draw what producers sent, what was lost, and what the broker decided, step by step."""
    selection = {"producer_id": producer_id, "topic": topic, "partition": partition}
    if file is not None:
        events = _chosen(_read(file), selection)
    else:
        records = follow or bool(follow_for)
        seconds = None if follow else follow_for or 0.0
        if last is None:
            last = 0 if records else _LAST_DEFAULT
        ports = admin_ports(admin or [ADMIN_DEFAULT], admin_token_file, command_config)
        events = _record(ports, seconds, last, selection)
    if not events:
        raise CommandError(
            "nothing was decided: there is nothing to draw (--follow waits for producers)"
        )
    _write(events, svg, mermaid, record, title)
    if json_lines:
        sys.stdout.write(_lines(events))
    elif svg is None and mermaid is None and record is None:
        sys.stdout.write(_mermaid(events))


def _record(
    ports: AdminPorts, seconds: float | None, last: int, selection: dict[str, Any]
) -> list[Event]:
    """Records until the time is over (None: never), Ctrl-C is pressed or the brokers have exited."""
    from echoless.testkit.admin import AdminError
    from echoless.testkit.recorder import Recorder

    end = None if seconds is None else time.monotonic() + seconds
    try:
        with Recorder(**ports._asdict(), last=last, **selection) as recorder:
            if end is None:
                typer.echo("recording; Ctrl-C ends it", err=True)
            try:
                while not recorder.has_ended and (end is None or time.monotonic() < end):
                    time.sleep(_LOOK_EVERY_S)
            except KeyboardInterrupt:
                typer.echo(f"{len(recorder.events)} events", err=True)
    except AdminError as error:
        raise refused(error) from error
    return recorder.events


def _read(file: Path) -> list[Event]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file}: {error}") from error
    return [_event(file, number, line) for number, line in enumerate(text.splitlines(), 1) if line]


def _event(file: Path, number: int, line: str) -> Event:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise CommandError(f"{file}, line {number}: {error}") from error
    if not isinstance(event, dict) or "event" not in event:
        raise CommandError(
            f"{file}, line {number}: not an event; echoless decisions --json writes them"
        )
    return event


def _chosen(events: list[Event], selection: dict[str, Any]) -> list[Event]:
    """The selected events, by the broker's rule: an event without a batch concerns everyone."""
    wanted = {name: value for name, value in selection.items() if value is not None}

    def fits(batch: Event) -> bool:
        return all(batch.get(name) == value for name, value in wanted.items())

    def is_chosen(event: Event) -> bool:
        batches = [event] if event["event"] == "decision" else event.get("batches")
        return not batches or any(fits(batch) for batch in batches)

    return [event for event in events if is_chosen(event)]


def _write(
    events: list[Event],
    svg: Path | None,
    mermaid: Path | None,
    record: Path | None,
    title: str,
) -> None:
    from echoless.diagram import render_svg

    if record is not None:
        record.write_text(_lines(events))
    if svg is not None:
        svg.write_text(render_svg(events, title))
    if mermaid is not None:
        text = _mermaid(events)
        mermaid.write_text(f"```mermaid\n{text}```\n" if mermaid.suffix == ".md" else text)
    for written in (record, svg, mermaid):
        if written is not None:
            typer.echo(f"wrote {written}", err=True)


def _lines(events: list[Event]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def _mermaid(events: list[Event]) -> str:
    from echoless.diagram import render_mermaid

    return render_mermaid(events)
