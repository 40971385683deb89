"""`echoless consume`: the records of a topic, a line each, up to the end or as they come.

Alone it reads every partition that it is asked for. As a member of a group it shares them with the other members,
and commits what it has printed: after a crash the last lines may be printed again, none is left out.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Annotated

import typer

from echoless.cli.completion import topic_names
from echoless.cli.consumption.record_lines import RecordLines
from echoless.cli.consumption.starts import read_start
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions


class IsolationLevel(enum.StrEnum):
    """The transactions whose records are printed: all, or those that were committed."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@grouped
def consume(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=topic_names)],
    *,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="earliest|latest|OFFSET|TIME",
            help="Where to begin; TIME as 2026-11-22T14:30:00, in UTC unless it has a zone. "
            "Default: earliest, or where the group stopped.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Share the partitions in this group, and commit.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="One partition; may be repeated.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more at the end, until Ctrl-C.")
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many records.")] = None,
    isolation: Annotated[
        IsolationLevel,
        typer.Option(
            help="read_committed: nothing of a transaction that is open or was aborted, nor what follows an open one."
        ),
    ] = IsolationLevel.READ_UNCOMMITTED,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print the key, too, and this after it.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per record, with all its fields.")
    ] = False,
    broker: BrokerOptions,
) -> None:
    """Print the records of a topic."""
    from echoless.cli.consumption.consumer import Wanted, print_records

    wanted = Wanted(
        topic,
        read_start(start),
        group,
        tuple(partition or ()),
        follow=follow,
        count_max=count,
        isolation=isolation.value,
    )
    if group is not None and (partition or not wanted.start.is_an_end):
        what = "--partition" if partition else "--from OFFSET and --from TIME"
        raise CommandError(f"{what}: not with --group, which decides; see echoless groups --help")
    lines = RecordLines(key_separator, as_json=json)
    try:
        asyncio.run(print_records(broker, wanted, lines))
    except KeyboardInterrupt:
        return  # the way to end following
