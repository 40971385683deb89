"""The bytes that brokers hold of each replica, as each of them says itself (DescribeLogDirs)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import typer

from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.errors import CommandError

_UNIT: Final = 1024
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")

Place = tuple[str, int]
"""A topic and a partition."""


class HeldBytes(NamedTuple):
    """The log directory of one broker."""

    replicas: dict[Place, int]
    free_bytes: int | None
    """Free bytes of the volume; None where the broker does not know."""


def held_bytes(
    cluster: ClusterConnections,
    broker_id: int,
    wanted: Iterable[Place] | None = None,
    said: set[str] | None = None,
) -> HeldBytes | None:
    """Asks a broker that the last metadata named; None, with a line that says why, if it does not answer.

    `wanted`: those replicas; None for all. `said`: lines that need not be repeated; the new one is added.
    """
    try:
        answer = cluster.request_to(
            broker_id, "describe_log_dirs", {"topics": None if wanted is None else _topics(wanted)}
        )
        for row in (answer, *answer.results):
            if code := getattr(row, "error_code", None):  # of the whole answer from version 3 on
                check(code, getattr(row, "log_dir", "log directories"))
    except CommandError as error:
        line = f"the bytes of broker {broker_id} are not known: {error}"
        if said is None or line not in said:
            typer.echo(line, err=True)
        if said is not None:
            said.add(line)
        return None
    replicas = {
        (topic.name, one.partition_index): int(one.partition_size)
        for row in answer.results
        for topic in row.topics
        for one in topic.partitions
    }
    free = [int(getattr(row, "usable_bytes", -1)) for row in answer.results]
    return HeldBytes(replicas, sum(free) if free and min(free) >= 0 else None)


def _topics(wanted: Iterable[Place]) -> list[dict[str, Any]]:
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in wanted:
        partitions[topic].append(partition)
    return [{"topic": topic, "partitions": partitions[topic]} for topic in partitions]


def bytes_text(size: int | None) -> str:
    """A size for people: `17 B`, `1.4 MiB`."""
    if size is None:
        return "?"
    if size < _UNIT:
        return f"{size} B"
    exponent = 1
    while size >= 1000 * _UNIT**exponent and exponent < len(_UNITS):
        exponent += 1
    return f"{size / _UNIT**exponent:.1f} {_UNITS[exponent - 1]}"
