"""`echoless brokers`: what each broker of a cluster holds, so that one that is to be retired is seen to be empty.

A broker is asked for the replicas on its disk (DescribeLogDirs), the cluster for what is assigned to it (Metadata).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from echoless.cli.cluster import ClusterConnections
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json
from echoless.cli.output import counted, print_json, print_table
from echoless.cli.replica_sizes import HeldBytes, Place, bytes_text, held_bytes

_LEADS: Final = "leads"
_FOLLOWS: Final = "follows"
_UNASSIGNED: Final = "not assigned"
"""A copy that is about to be removed: the partition has moved away, or its topic is gone or hidden from this user."""


@grouped
def brokers(
    broker_id: Annotated[
        int | None,
        typer.Argument(metavar="[BROKER]", help="List the partitions of the broker with this id."),
    ] = None,
    *,
    as_json: Json = False,
    broker: BrokerOptions,
) -> None:
    """Show what each broker holds: partitions, how many it leads, bytes; with an id, each of its partitions."""
    with ClusterConnections.open(broker) as cluster:
        roles = _roles(cluster.metadata().topics)
        ids = {*cluster.broker_ids, *roles} if broker_id is None else {broker_id}
        documents = [_document(cluster, one, roles.get(one, {})) for one in sorted(ids)]
    if broker_id is None:
        _show_all(documents, as_json=as_json)
    else:
        _show_one(documents[0], as_json=as_json)


def _roles(topics: Any) -> dict[int, dict[Place, dict[str, Any]]]:
    """Maps each broker to its role for every partition assigned to it."""
    roles: dict[int, dict[Place, dict[str, Any]]] = {}
    for topic in topics:
        for one in topic.partitions:
            for broker_id in one.replica_nodes:
                roles.setdefault(broker_id, {})[topic.name, one.partition_index] = {
                    "role": _LEADS if one.leader_id == broker_id else _FOLLOWS,
                    "in_sync": broker_id in one.isr_nodes,
                }
    return roles


def _document(
    cluster: ClusterConnections, broker_id: int, roles: Mapping[Place, dict[str, Any]]
) -> dict[str, Any]:
    address = cluster.address_of(broker_id)
    held = None if address is None else held_bytes(cluster, broker_id)
    partitions = [
        _partition(place, roles.get(place), held)
        for place in sorted({*roles, *(() if held is None else held.replicas)})
    ]
    return {
        "broker": broker_id,
        "address": address,
        "leads": sum(one["role"] == _LEADS for one in partitions),
        "bytes": None if held is None else sum(held.replicas.values()),
        "free_bytes": None if held is None else held.free_bytes,
        "partitions": partitions,
    }


def _partition(
    place: Place, role: Mapping[str, Any] | None, held: HeldBytes | None
) -> dict[str, Any]:
    topic, partition = place
    return {
        "topic": topic,
        "partition": partition,
        **(role or {"role": _UNASSIGNED, "in_sync": False}),
        "bytes": None if held is None else held.replicas.get(place, 0),
    }


def _show_all(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json([{**one, "partitions": len(one["partitions"])} for one in documents])
        return
    columns = ("broker", "address", "partitions", "leads", "bytes", "free")
    rows = [
        (
            one["broker"],
            one["address"] or "not registered",
            len(one["partitions"]),
            one["leads"],
            bytes_text(one["bytes"]),
            bytes_text(one["free_bytes"]),
        )
        for one in documents
    ]
    print_table(counted(len(rows), "broker"), columns, rows)


def _show_one(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    partitions = document["partitions"]
    said = [f"holds {counted(len(partitions), 'partition')}" if partitions else "holds nothing"]
    if document["address"] is None:
        said.insert(0, "is not registered")
    if partitions:
        said += [f"leads {document['leads']}", bytes_text(document["bytes"])]
    columns = ("topic", "partition", "role", "in sync", "bytes")
    rows = [
        (
            one["topic"],
            one["partition"],
            one["role"],
            "yes" if one["in_sync"] else "no",
            bytes_text(one["bytes"]),
        )
        for one in partitions
    ]
    print_table(f"broker {document['broker']} {', '.join(said)}", columns, rows)
