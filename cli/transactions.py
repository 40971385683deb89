"""`echoless transactions`: transactional ids, what they have open, and aborting that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from echoless.cli.cluster import ClusterConnections
from echoless.cli.completion import topic_names, transactional_ids
from echoless.cli.errors import CommandError
from echoless.cli.hanging_transactions import HangingPlace, abort_hanging
from echoless.cli.open_transactions import (
    NO_TIMEOUT_MS,
    OPEN_STATES,
    TransactionStateName,
    abort_transaction,
    described_transaction,
    listed_transactions,
)
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json
from echoless.cli.output import counted, print_json, print_table, time_text

app = typer.Typer(
    no_args_is_help=True,
    help="Show transactional ids and their transactions; abort one.",
)

_LIST_COLUMNS = ("transactional_id", "state", "producer_id", "coordinator")


class PlaceOptions(NamedTuple):
    """The place of a transaction that hangs. A group of options."""

    topic: Annotated[
        str | None,
        typer.Option(help="Of a transaction that hangs: its topic.", autocompletion=topic_names),
    ] = None
    partition: Annotated[int | None, typer.Option(min=0, help="Its partition.")] = None
    start_offset: Annotated[
        int | None,
        typer.Option(min=0, help="Its first offset there, as echoless producers shows it."),
    ] = None


@app.command("list")
@grouped
def list_transactions(
    *,
    state: Annotated[
        list[TransactionStateName] | None,
        typer.Option(case_sensitive=False, help="Only ids in this state; may be repeated."),
    ] = None,
    longer_than: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Only transactions that have been open for longer. (Kafka has this from 3.8 on.)",
        ),
    ] = None,
    json: Json = False,
    broker: BrokerOptions,
) -> None:
    """List the transactional ids of all brokers."""
    wanted: Sequence[TransactionStateName] = state or ()
    longer_than_ms = -1
    if longer_than is not None:
        wanted, longer_than_ms = state or OPEN_STATES, round(longer_than * 1000)
    with ClusterConnections.open(broker) as cluster:
        found = listed_transactions(cluster, states=wanted, longer_than_ms=longer_than_ms)
    if json:
        print_json(found)
        return
    columns = [name.replace("_", " ") for name in _LIST_COLUMNS]
    rows = [tuple(one[name] for name in _LIST_COLUMNS) for one in found]
    print_table(counted(len(rows), "transactional id"), columns, rows)


@app.command()
@grouped
def describe(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The transactional id.", autocompletion=transactional_ids
        ),
    ],
    *,
    json: Json = False,
    broker: BrokerOptions,
) -> None:
    """Show the state of a transactional id, and the partitions of its transaction.

    Once the end is decided, these are the partitions whose marker is missing.
    """
    with ClusterConnections.open(broker) as cluster:
        found = described_transaction(cluster, name)
    if json:
        print_json(found)
        return
    rows = [(one["topic"], one["partition"]) for one in found["partitions"]]
    print_table(_title(found), ("topic", "partition"), rows)


def _title(found: dict[str, Any]) -> str:
    start_ms = found["start_ms"]
    since = "" if start_ms is None else f", begun {time_text(start_ms)} UTC"
    timeout_ms = found["timeout_ms"]
    timeout = f"timeout {timeout_ms / 1000:g} s"
    if timeout_ms == NO_TIMEOUT_MS:
        timeout = "no timeout (two-phase commit)"
    return (
        f"{found['transactional_id']}: {found['state']}{since}, {timeout}, "
        f"producer {found['producer_id']} in epoch {found['producer_epoch']}, coordinated by broker {found['coordinator']}"
    )


@app.command()
@grouped
def abort(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="The transactional id.", autocompletion=transactional_ids
        ),
    ] = None,
    *,
    place: PlaceOptions,
    broker: BrokerOptions,
) -> None:
    """Abort the open transaction of an id, or one that hangs.

    With ID, a new session of the id is begun at its coordinator: its producer is fenced and fails with
    its next request, and what it has open is aborted. Start the producer again to go on.

    A transaction hangs if a partition holds it open and no coordinator knows of it. Readers of committed
    records stand still there. --topic, --partition and --start-offset have the leader of the partition
    write the marker; echoless producers TOPIC shows the offset. One that a coordinator knows is refused.
    """
    hanging = _hanging(place)
    if (name is None) == (hanging is None):
        raise CommandError("pass an id, or --topic, --partition and --start-offset")
    with ClusterConnections.open(broker) as cluster:
        if name is not None:
            abort_transaction(cluster, name)
            typer.echo(f"aborted the transaction of {name}, and fenced its producer", err=True)
        elif hanging is not None:
            abort_hanging(cluster, hanging)
            typer.echo(f"aborted the transaction at {hanging.start_offset} of {hanging}", err=True)


def _hanging(place: PlaceOptions) -> HangingPlace | None:
    """Raises `CommandError` if only a part is given."""
    topic, partition, start_offset = place
    if topic is None and partition is None and start_offset is None:
        return None
    if topic is None or partition is None or start_offset is None:
        raise CommandError("a transaction that hangs takes --topic, --partition and --start-offset")
    return HangingPlace(topic, partition, start_offset)
