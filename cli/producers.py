"""`echoless producers`: the producers that a topic's leaders remember (DescribeProducers)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.completion import topic_names
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json
from echoless.cli.output import counted, print_json, print_table, time_text


@grouped
def producers(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=topic_names)
    ],
    *,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    as_json: Json = False,
    broker: BrokerOptions,
) -> None:
    """Show the idempotent producers that a topic remembers."""
    with ClusterConnections.open(broker) as cluster:
        (described,) = cluster.metadata([topic]).topics
        check(described.error_code, topic)
        answers = cluster.ask_leaders(
            "describe_producers", [described], lambda by_topic: _request(by_topic, partition)
        )
    rows = _rows(answers)
    if partition is not None and partition >= len(described.partitions):
        raise CommandError(
            f"{topic} has partitions 0 to {len(described.partitions) - 1}, not {partition}"
        )
    if as_json:
        print_json(rows)
        return
    columns = (
        "partition",
        "producer id",
        "epoch",
        "last sequence",
        "last timestamp (UTC)",
        "open from",
    )
    shown = [
        (
            *list(row.values())[:4],
            time_text(row["last_timestamp"]),
            row["transaction_start_offset"],
        )
        for row in rows
    ]
    print_table(f"{topic}: {counted(len(rows), 'producer')}", columns, shown)


def _request(by_topic: dict[str, list[int]], partition: int | None) -> dict[str, Any]:
    topics = [
        {
            "name": topic,
            "partition_indexes": [i for i in indexes if partition is None or i == partition],
        }
        for topic, indexes in by_topic.items()
    ]
    return {"topics": [topic for topic in topics if topic["partition_indexes"]]}


def _rows(answers: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for answer in answers:
        for topic in answer.topics:
            for part in topic.partitions:
                check(part.error_code, f"{topic.name}-{part.partition_index}", part.error_message)
                rows += [_row(part.partition_index, state) for state in part.active_producers]
    return sorted(rows, key=lambda row: (row["partition"], row["producer_id"]))


def _row(partition: int, state: Any) -> dict[str, Any]:
    begins = int(state.current_txn_start_offset)
    return {
        "partition": partition,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp,
        "transaction_start_offset": None if begins < 0 else begins,
    }
