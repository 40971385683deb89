"""Answers with one row per partition, grouped by topic as in the request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from echoless.broker.network.request import Outcome
from echoless.broker.network.turns import in_turns


def partition_rows(
    topics: Sequence[Any], row: Callable[[str, Any], Mapping[str, Any]], *, name: str = "name"
) -> Outcome:
    """Calls `row` for each topic's name and partition, in order, some at a time.

    `name` is the field that holds the topic's name, in the request and in the answer.
    """
    found: list[dict[str, Any]] = []

    def steps() -> Iterator[None]:
        for topic in topics:
            key, rows = getattr(topic, name), list[Mapping[str, Any]]()
            found.append({name: key, "partitions": rows})
            for one in topic.partitions:
                rows.append(row(key, one))
                yield
            if not rows:
                yield

    return in_turns(steps(), lambda _: {"topics": found})


def grouped(
    topics: Sequence[Any], rows: Iterator[Mapping[str, Any]], name: str = "name"
) -> list[dict[str, Any]]:
    """The rows of all partitions that the topics of a request name, under their topics."""
    return [
        {name: getattr(topic, name), "partitions": list(islice(rows, len(topic.partitions)))}
        for topic in topics
    ]
