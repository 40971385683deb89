"""`echoless topics reassign` and `echoless topics elect-leaders`: moves of replicas and leadership."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.completion import topic_names
from echoless.cli.errors import CommandError
from echoless.cli.move_progress import moves_with_bytes, show_moves, wait_for_moves
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json

_TIMEOUT_MS = 8_000
"""Shorter than the connection's own, so that the broker can say what it is waiting for."""
_PREFERRED, _UNCLEAN = 0, 1

OneTopic = Annotated[
    str | None,
    typer.Argument(metavar="[TOPIC]", help="Without: all topics.", autocompletion=topic_names),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", metavar="N", help="Only this partition; may be repeated."),
]


@grouped
def reassign(
    topic: OneTopic = None,
    *,
    partition: Partitions = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            metavar="ID,ID,...", help="The brokers to move to, the preferred leader first."
        ),
    ] = None,
    replace: Annotated[
        str | None,
        typer.Option(metavar="OLD=NEW", help="Replace one broker by another."),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel moves in progress.")] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until nothing moves, and show how far the copies are."),
    ] = False,
    as_json: Json = False,
    broker: BrokerOptions,
) -> None:
    """Move partitions to other brokers; without an option, show the moves in progress and how far they are."""
    is_change = replicas is not None or replace is not None or cancel
    if (replicas is not None) + (replace is not None) + cancel > 1:
        raise CommandError("pass only one of --replicas, --replace and --cancel")
    if replicas is not None and (topic is None or not partition):
        raise CommandError("--replicas: name the topic, and its partitions with --partition")
    with ClusterConnections.open(broker) as cluster:
        moving = _moving(cluster, topic, partition)
        if replicas is not None:
            wanted = dict.fromkeys(partition or (), _broker_ids("--replicas", replicas, ","))
            _alter(cluster, {str(topic): wanted})
        elif replace is not None:
            old, new = _old_and_new(replace)
            _alter(cluster, _replaced(_staying(cluster, topic, partition, moving), old, new))
        elif cancel:
            targets: dict[str, dict[int, list[int] | None]] = {}
            for one in moving:
                targets.setdefault(one["topic"], {})[one["partition"]] = None
            _alter(cluster, targets)
        if wait:
            said = set[str]()
            wait_for_moves(
                lambda: moves_with_bytes(cluster, _moving(cluster, topic, partition), said)
            )
            moving = []
        if wait or not is_change:
            show_moves(moves_with_bytes(cluster, moving), as_json=as_json)


@grouped
def elect_leaders(
    topic: OneTopic = None,
    *,
    partition: Partitions = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="End an outage with any replica; loses what it lacks."),
    ] = False,
    broker: BrokerOptions,
) -> None:
    """Give partitions back to their preferred leaders."""
    if unclean and topic is None:
        raise CommandError("--unclean: name the topic whose records may be lost")
    with ClusterConnections.open(broker) as cluster:
        fields = {
            "election_type": _UNCLEAN if unclean else _PREFERRED,
            "topic_partitions": None
            if topic is None
            else [{"topic": topic, "partitions": partition or _partitions(cluster, topic)}],
            "timeout": _TIMEOUT_MS,
        }
        answer = cluster.request("elect_leaders", fields)
    check(answer.error_code, "elections")
    rows = [
        (f"{result.topic}-{row.partition_id}", row.error_code, row.error_message)
        for result in answer.replica_election_results
        for row in result.partition_result
    ]
    elected = [name for name, code, _ in rows if code.value == 0]
    typer.echo(f"elected: {', '.join(elected) or 'none'}", err=True)
    for name, code, message in rows:
        if code.name != "election_not_needed":
            check(code, name, message)


def _broker_ids(option: str, text: str, separator: str) -> list[int]:
    try:
        return [int(one) for one in text.split(separator)]
    except ValueError:
        raise CommandError(
            f"{option}: takes broker ids with {separator!r} between them, not {text!r}"
        ) from None


def _described(cluster: ClusterConnections, topic: str | None) -> Sequence[Any]:
    topics: Sequence[Any] = cluster.metadata(None if topic is None else [topic]).topics
    for one in topics:
        check(one.error_code, one.name)
    return topics


def _partitions(cluster: ClusterConnections, topic: str) -> list[int]:
    return [one.partition_index for one in _described(cluster, topic)[0].partitions]


def _old_and_new(text: str) -> tuple[int, int]:
    match _broker_ids("--replace", text, "="):
        case [old, new]:
            return old, new
    raise CommandError(f"--replace: takes OLD=NEW, not {text!r}")


def _staying(
    cluster: ClusterConnections,
    topic: str | None,
    partitions: Sequence[int] | None,
    moving: Sequence[Mapping[str, Any]],
) -> dict[str, dict[int, list[int]]]:
    """The replicas of every partition, without those being removed."""
    removing = {(one["topic"], one["partition"]): one["removing"] for one in moving}
    return {
        str(one.name): {
            row.partition_index: [
                replica
                for replica in row.replica_nodes
                if replica not in removing.get((one.name, row.partition_index), ())
            ]
            for row in one.partitions
            if not partitions or row.partition_index in partitions
        }
        for one in _described(cluster, topic)
    }


def _replaced(
    assignments: Mapping[str, Mapping[int, list[int]]], old: int, new: int
) -> dict[str, dict[int, list[int]]]:
    """The assignments that contain the old broker, with the new one in its place."""
    return {
        topic: {
            partition: [new if replica == old else replica for replica in replicas]
            for partition, replicas in assignment.items()
            if old in replicas
        }
        for topic, assignment in assignments.items()
    }


def _alter(
    cluster: ClusterConnections, targets: Mapping[str, Mapping[int, list[int] | None]]
) -> None:
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": p, "replicas": partitions[p]} for p in partitions],
        }
        for name, partitions in targets.items()
    ]
    answer = cluster.request(
        "alter_partition_reassignments", {"timeout": _TIMEOUT_MS, "topics": topics}
    )
    check(answer.error_code, "reassignment", answer.error_message)
    rows = [(result.name, row) for result in answer.responses for row in result.partitions]
    accepted = [f"{name}-{row.partition_index}" for name, row in rows if row.error_code.value == 0]
    typer.echo(f"accepted: {', '.join(accepted) or 'nothing'}", err=True)
    for name, row in rows:
        check(row.error_code, f"{name}-{row.partition_index}", row.error_message)


def _moving(
    cluster: ClusterConnections, topic: str | None, partitions: Sequence[int] | None
) -> list[dict[str, Any]]:
    """The moves in progress, with their in-sync replicas."""
    answer = cluster.request(
        "list_partition_reassignments", {"timeout": _TIMEOUT_MS, "topics": None}
    )
    rows = {
        (one.name, row.partition_index): row
        for one in _described(cluster, topic)
        for row in one.partitions
    }
    return [
        {
            "topic": one.name,
            "partition": row.partition_index,
            "replicas": list(row.replicas),
            "leader": rows[one.name, row.partition_index].leader_id,
            "isr": list(rows[one.name, row.partition_index].isr_nodes),
            "adding": list(row.adding_replicas),
            "removing": list(row.removing_replicas),
        }
        for one in answer.topics
        for row in one.partitions
        if (one.name, row.partition_index) in rows
        and (not partitions or row.partition_index in partitions)
    ]
