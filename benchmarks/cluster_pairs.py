"""Three brokers of Echoless and three of Apache Kafka in turn: what the benchmarks of clusters share.

A benchmark is a function that is given a cluster on fresh data, and notes figures as it has them. Whatever ends it, what it
has noted is printed: a step that fails on one kind says nothing about the steps before, nor about the other kind.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.many_partitions import processor_s
from benchmarks.versus_kafka import KAFKA_JVM
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.cluster import Cluster

AnyCluster = Cluster | ApacheKafkaCluster
KINDS: Final = ("echoless", "kafka")


class Figures(dict[str, float]):
    """Figures by name; each is printed when it is noted."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def note(self, name: str, figure: float) -> None:
        self[name] = figure
        print(f"{self._kind}: {name}: {figure:.2f}", file=sys.stderr, flush=True)


Measure = Callable[[AnyCluster, int, Figures], None]
"""Notes the figures of a cluster with so many partitions."""


@contextmanager
def fresh(kind: str) -> Iterator[AnyCluster]:
    """Three brokers on new data directories."""
    directory = Path(tempfile.mkdtemp(prefix=f"cluster-{kind}-"))
    settings = {"auto.create.topics.enable": "false"}
    made: AnyCluster = (
        Cluster(directory)
        if kind == "echoless"
        else ApacheKafkaCluster(directory, settings, jvm=KAFKA_JVM)
    )
    try:
        with made as cluster:
            cluster.start()
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def pids_of(cluster: AnyCluster) -> list[int]:
    """The processes of the brokers, in their order, and with Echoless of ZooKeeper."""
    if isinstance(cluster, Cluster):
        brokers = [broker.process.pid for broker in cluster.brokers.values()]
        return [*brokers, cluster.zookeeper.process.pid]
    return [one.process.pid for one in cluster.nodes]


def spent_s(pids: Sequence[int]) -> float:
    """Processor time of all of them so far."""
    return sum(map(processor_s, pids))


def measured(kind: str, partitions: int, measure: Measure) -> tuple[Figures, bool]:
    """The figures of one round, and whether they are all."""
    figures = Figures(kind)
    try:
        with fresh(kind) as cluster:
            measure(cluster, partitions, figures)
    except Exception:  # noqa: BLE001 - whatever it was, the figures so far count
        traceback.print_exc()
        return figures, False
    return figures, True


def compare(description: str | None, partitions: int, measure: Measure) -> int:
    """Runs a benchmark as its command line says, and prints the medians. Returns the exit status."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--partitions", type=int, default=partitions)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    found: dict[str, list[Figures]] = {kind: [] for kind in KINDS if options.only in {None, kind}}
    is_whole = True
    for _ in range(options.rounds):
        for kind, rounds in found.items():
            figures, is_complete = measured(kind, options.partitions, measure)
            rounds.append(figures)
            is_whole &= is_complete
    print(table(options.partitions, found))
    return 0 if is_whole else 1


def table(partitions: int, found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The medians by kind, a line for each figure; a dash where no round came so far."""
    names = dict.fromkeys(
        name for rounds in found.values() for figures in rounds for name in figures
    )
    lines = [f"{f'{partitions} partitions':56}" + "".join(f"{kind:>12}" for kind in found)]
    for name in names:
        shown = ""
        for rounds in found.values():
            values = [figures[name] for figures in rounds if name in figures]
            shown += f"{statistics.median(values):12.2f}" if values else f"{'-':>12}"
        lines.append(f"{name:56}{shown}")
    return "\n".join(lines)
