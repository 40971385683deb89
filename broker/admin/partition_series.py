"""The metrics of single partitions, as text.

There are a dozen series for each of thousands of partitions, of which few change between two scrapes. So all values
are read for each scrape, and the lines of a partition are formatted again only if one of its values is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.utils import floatToGoString

from echoless.broker.admin.view import BrokerView, PartitionView

Key = tuple[str, int]
Values = tuple[float | None, ...]

_PREFIX: Final = "echoless_partition_"


class Family(NamedTuple):
    """One metric with a series for each partition."""

    name: str
    kind: str
    help_text: str
    value_of: Callable[[PartitionView], float | None]
    """None: no series for this partition."""


FAMILIES: Final = (
    Family(
        "log_start_offset", "gauge", "First offset in the log", lambda p: p.log.log_start_offset
    ),
    Family("log_end_offset", "gauge", "Next offset to be written", lambda p: p.log.log_end_offset),
    Family("high_watermark", "gauge", "Offsets below it are committed", lambda p: p.high_watermark),
    Family(
        "last_stable_offset",
        "gauge",
        "Transactions that have a record below it have ended",
        lambda p: p.last_stable_offset,
    ),
    Family(
        "open_transactions",
        "gauge",
        "Transactions without a marker yet",
        lambda p: p.log.producers.open_transaction_count,
    ),
    Family("log_size_bytes", "gauge", "Bytes of all segments", lambda p: p.log.size_bytes),
    Family("producers", "gauge", "Producer ids remembered", lambda p: len(p.log.producers)),
    Family("in_sync_replicas", "gauge", "Replicas in sync", lambda p: len(p.isr)),
    Family(
        "missing_replicas",
        "gauge",
        "Replicas that are not in sync, where this broker leads",
        lambda p: len(set(p.replicas) - set(p.isr)) if p.is_leader else 0,
    ),
    Family("is_leader", "gauge", "1 where this broker leads", lambda p: int(p.is_leader)),
    Family(
        "dirty_ratio",
        "gauge",
        "The part of a compacted log that could be cleaned and was not yet",
        lambda p: p.log.dirty_ratio,
    ),
    Family(
        "producers_expired_total",
        "counter",
        "Producer ids forgotten after producer_id_expiration_ms",
        lambda p: p.log.producers.expired_total,
    ),
    Family(
        "producers_evicted_total",
        "counter",
        "Producer ids forgotten because of producers_per_partition_max",
        lambda p: p.log.producers.evicted_total,
    ),
)


class PartitionSeries:
    """The text of all families, and the lines of the last scrape."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[Values, list[str]]] = {}
        """The values and the lines of each partition, a line for each family. For the thread of `text` alone."""

    def text(self, rows: Sequence[tuple[Key, Values]]) -> bytes:
        """Formats the rows that `read` has found; in one thread at a time."""
        before, self._known = self._known, {}
        for key, values in sorted(rows):
            known = before.get(key)
            if known is None or known[0] != values:
                known = values, _lines(key, values)
            self._known[key] = known
        lines = [lines for _, lines in self._known.values()]
        parts = []
        for index, (name, kind, help_text, _) in enumerate(FAMILIES):
            parts.append(f"# HELP {_PREFIX}{name} {help_text}\n# TYPE {_PREFIX}{name} {kind}\n")
            parts += [of_partition[index] for of_partition in lines]
        return "".join(parts).encode()


def read(broker: BrokerView, rows: list[tuple[Key, Values]]) -> Iterator[None]:
    """Adds the values of each partition that the broker holds; a partition a step."""
    for key, partition in list(broker.partitions.items()):
        if broker.partitions.get(key) is partition:  # it may have been deleted meanwhile
            rows.append((key, tuple(family.value_of(partition) for family in FAMILIES)))
        yield


def _lines(key: Key, values: Values) -> list[str]:
    """A line for each family, empty where there is no series. No topic has a name that needs escaping."""
    labels = f'{{partition="{key[1]}",topic="{key[0]}"}}'
    return [
        "" if value is None else f"{_PREFIX}{family.name}{labels} {_number(value)}\n"
        for family, value in zip(FAMILIES, values, strict=True)
    ]


def _number(value: float) -> str:
    """The number as prometheus_client writes it."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
