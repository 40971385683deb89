"""`echoless groups`: consumer groups, their members, how far they are, and moving their offsets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.completion import group_names, topic_names
from echoless.cli.errors import CommandError
from echoless.cli.group_offsets import (
    commit_moves,
    coordinator_of,
    described_group,
    listed_groups,
    planned_moves,
)
from echoless.cli.group_targets import read_target, read_topics
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json
from echoless.cli.output import counted, print_json, print_table

app = typer.Typer(
    no_args_is_help=True,
    help="Show consumer groups and their lag; move their offsets; delete them.",
)

Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group's id.", autocompletion=group_names)
]
_OFFSET_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member", "host")


@app.command("list")
@grouped
def list_groups(*, json: Json = False, broker: BrokerOptions) -> None:
    """List the groups of all brokers."""
    with ClusterConnections.open(broker) as cluster:
        found = listed_groups(cluster)
    if json:
        print_json(found)
        return
    columns = ("group", "state", "type", "protocol", "coordinator")
    rows = [tuple(one[column] for column in columns) for one in found]
    print_table(counted(len(rows), "group"), columns, rows)


@app.command()
@grouped
def describe(group: Group, *, json: Json = False, broker: BrokerOptions) -> None:
    """Show a group's members, and for each partition what it has committed and how far behind it is."""
    with ClusterConnections.open(broker) as cluster:
        found = described_group(cluster, group)
    if json:
        print_json(found)
        return
    members = found["members"]
    title = f"{group}: {found['state']}, {counted(len(members), 'member')}, coordinated by broker {found['coordinator']}"
    if "epoch" in found:
        title += f", epoch {found['epoch']}"
    hosts = {one["member"]: f"{one['host']} ({one['client_id']})" for one in members}
    rows = [
        (*(row[name] for name in _OFFSET_COLUMNS[:-1]), hosts.get(row["member"]))
        for row in found["partitions"]
    ]
    print_table(title, _OFFSET_COLUMNS, rows)
    if "epoch" in found:
        _print_members(members)


def _print_members(members: list[dict[str, Any]]) -> None:
    """Show how far members of the consumer protocol are on the way to what they are to have."""
    rows = [
        (
            one["member"],
            one["epoch"],
            " ".join(one["assigned"]),
            "" if one["target"] == one["assigned"] else " ".join(one["target"]),
        )
        for one in members
    ]
    print_table("members", ("member", "epoch", "assigned", "target if another"), rows)


@app.command("reset-offsets")
@grouped
def reset_offsets(
    group: Group,
    *,
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC[:PARTITION,...]", help="May be repeated.", autocompletion=topic_names
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="earliest|latest|OFFSET|TIME",
            help="TIME as 2026-11-22T14:30:00, in UTC unless it has a zone.",
        ),
    ] = None,
    back: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="To what was sent so long ago: 90s, 15m, 2h, 1d."),
    ] = None,
    by: Annotated[
        int | None, typer.Option(help="Forward or (below 0) back by so many records.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without this it is only shown.")
    ] = False,
    json: Json = False,
    broker: BrokerOptions,
) -> None:
    """Move what a group without members has committed; shows the move first, and makes it with --execute."""
    target, topics = read_target(to, back, by), read_topics(topic)
    with ClusterConnections.open(broker) as cluster:
        moves = planned_moves(cluster, group, topics, target)
        if execute:
            commit_moves(cluster, group, moves)
    if json:
        print_json({"group": group, "executed": execute, "partitions": moves})
        return
    rows = [(one["topic"], one["partition"], one["from"], one["to"]) for one in moves]
    title = f"{group} is moved" if execute else f"{group} would be moved; --execute does it"
    print_table(title, ("topic", "partition", "from", "to"), rows)


@app.command()
@grouped
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(metavar="GROUP...", help="Ids of groups.", autocompletion=group_names),
    ],
    *,
    broker: BrokerOptions,
) -> None:
    """Delete groups without members, and what they have committed."""
    failed: list[str] = []
    with ClusterConnections.open(broker) as cluster:
        cluster.metadata([])
        for group in groups:
            fields = {"groups_names": [group]}
            answer: Any = cluster.request_to(
                coordinator_of(cluster, group), "delete_groups", fields
            )
            try:
                check(answer.results[0].error_code, group)
            except CommandError as error:
                failed.append(str(error))
            else:
                typer.echo(f"deleted {group}", err=True)
    if failed:
        raise CommandError("; ".join(failed))
