"""`echoless topics`: create, list, describe, alter and delete topics; moving them: `topic_moves.py`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from echoless.cli import topic_moves
from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.completion import topic_names
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json
from echoless.cli.output import counted, print_json, print_table
from echoless.cli.topic_description import describe_topics

_TIMEOUT_MS = 30_000
_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1

app = typer.Typer(
    help="Create, list, describe, alter, move and delete topics.", no_args_is_help=True
)

Name = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=topic_names)
]
Names = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="Topic names.", autocompletion=topic_names),
]
OptionalNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC...]", help="Topic names. Without: all.", autocompletion=topic_names
    ),
]
ConfigPairs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="Set an override, as retention.ms=60000."),
]


@app.command()
@grouped
def create(
    topic: Name,
    *,
    partitions: Annotated[int, typer.Option(help="-1: the broker's default.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1: the broker's default.")] = -1,
    config: ConfigPairs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists")] = False,
    broker: BrokerOptions,
) -> None:
    """Create a topic."""
    new = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": (),
        "configs": [{"name": n, "value": v} for n, v in _pairs(config).items()],
    }
    with ClusterConnections.open(broker) as cluster:
        answer = cluster.request("create_topics", {"topics": [new], "timeout": _TIMEOUT_MS})
    (result,) = answer.topics
    if if_not_exists and result.error_code.name == "topic_already_exists":
        typer.echo(f"{topic} exists", err=True)
        return
    check(result.error_code, topic, result.error_message)
    typer.echo(f"created {topic}", err=True)


@app.command("list")
@grouped
def list_topics(*, as_json: Json = False, broker: BrokerOptions) -> None:
    """List all topics."""
    with ClusterConnections.open(broker) as cluster:
        topics = sorted(cluster.metadata().topics, key=lambda topic: str(topic.name))
    found = [
        {
            "name": topic.name,
            "id": str(topic.topic_id),
            "partitions": len(topic.partitions),
            "replication_factor": max((len(p.replica_nodes) for p in topic.partitions), default=0),
        }
        for topic in topics
    ]
    if as_json:
        print_json(found)
    else:
        columns = ("topic", "partitions", "replication factor", "id")
        rows = [(t["name"], t["partitions"], t["replication_factor"], t["id"]) for t in found]
        print_table(counted(len(found), "topic"), columns, rows)


@app.command()
@grouped
def describe(topics: OptionalNames = None, *, as_json: Json = False, broker: BrokerOptions) -> None:
    """Show leaders, replicas, offsets and overrides of topics; without a name, of all."""
    with ClusterConnections.open(broker) as cluster:
        described = cluster.metadata(topics or None).topics
        if not topics:
            described = sorted(described, key=lambda topic: str(topic.name))
        for topic in described:
            check(topic.error_code, topic.name)
        found = describe_topics(cluster, described)
    if as_json:
        print_json(found)
        return
    for one in found:
        overrides = ", ".join(f"{n}={v}" for n, v in one["configs"].items()) or "no overrides"
        columns = ("partition", "leader", "epoch", "replicas", "in sync", "start", "end")
        rows = [tuple(partition.values()) for partition in one["partitions"]]
        print_table(f"{one['name']} ({one['id']}; {overrides})", columns, rows)


@app.command()
@grouped
def alter(
    topic: Name,
    *,
    partitions: Annotated[int | None, typer.Option(help="Grow to this many partitions.")] = None,
    config: ConfigPairs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Return to the broker's value.")
    ] = None,
    broker: BrokerOptions,
) -> None:
    """Change a topic's overrides, or add partitions to it."""
    changes = [{"name": n, "config_operation": _SET, "value": v} for n, v in _pairs(config).items()]
    changes += [
        {"name": n, "config_operation": _DELETE, "value": None} for n in delete_config or ()
    ]
    if not changes and partitions is None:
        raise CommandError("nothing to alter; pass --config, --delete-config or --partitions")
    with ClusterConnections.open(broker) as cluster:
        if changes:
            _alter_configs(cluster, topic, changes)
        if partitions is not None:
            _add_partitions(cluster, topic, partitions)
    typer.echo(f"altered {topic}", err=True)


@app.command()
@grouped
def delete(
    topics: Names,
    *,
    if_exists: Annotated[bool, typer.Option("--if-exists")] = False,
    broker: BrokerOptions,
) -> None:
    """Delete topics with everything they hold."""
    named = {
        "topics": [{"name": topic, "topic_id": None} for topic in topics],
        "topic_names": topics,
        "timeout": _TIMEOUT_MS,
    }
    with ClusterConnections.open(broker) as cluster:
        answer = cluster.request("delete_topics", named)
    for result in answer.responses:
        if if_exists and result.error_code.name == "unknown_topic_or_partition":
            continue
        check(result.error_code, str(result.name), getattr(result, "error_message", None))
        typer.echo(f"deleted {result.name}", err=True)


app.command()(topic_moves.reassign)
app.command("elect-leaders")(topic_moves.elect_leaders)


def _pairs(config: list[str] | None) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in config or ()]
    for name, separator, _ in pairs:
        if not name or not separator:
            raise CommandError(f"--config: takes NAME=VALUE, not {name!r}")
    return {name: value for name, _, value in pairs}


def _alter_configs(cluster: ClusterConnections, topic: str, changes: list[dict[str, Any]]) -> None:
    resource = {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configs": changes}
    answer = cluster.request(
        "incremental_alter_configs", {"resources": [resource], "validate_only": False}
    )
    (result,) = answer.responses
    check(result.error_code, topic, result.error_message)


def _add_partitions(cluster: ClusterConnections, topic: str, count: int) -> None:
    grown = {"name": topic, "count": count, "assignments": None}
    answer = cluster.request(
        "create_partitions",
        {"topics": [grown], "timeout": _TIMEOUT_MS, "validate_only": False},
    )
    (result,) = answer.results
    check(result.error_code, topic, result.error_message)
