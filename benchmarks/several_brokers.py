"""`python -m benchmarks.several_brokers`: one broker, two and four on this machine, each in a cluster of its own.

One idempotent librdkafka producer writes to a topic with a partition for each broker, acks=all; with one replica, and with
followers (`--replicas`, no more than brokers). A partition of a cluster of one is one partition's limit.
Batches/s are limited by the processors that brokers, client and ZooKeeper share; the processor time that all
brokers together take per batch says what more processors would allow.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.pairs import run_load, several_in_turn
from benchmarks.request_cost import processor_s
from tests.support.cluster import Cluster

_TOPICS: Final = map("several-{}".format, count())


@contextmanager
def cluster_of(brokers: int) -> Iterator[Cluster]:
    """So many brokers and a ZooKeeper, on fresh data."""
    with (
        tempfile.TemporaryDirectory(prefix="several-") as directory,
        Cluster(Path(directory), brokers=brokers) as cluster,
    ):
        cluster.start()
        yield cluster


def load_once(
    cluster: Cluster, replicas: int, batch_bytes: int, seconds: float
) -> dict[str, float]:
    """Batches/s, and microseconds of all brokers per batch."""
    topic = next(_TOPICS)
    cluster.create_topic(topic, len(cluster.brokers), replicas=replicas)
    before = _processor_s(cluster)
    load = run_load(
        "throughput", cluster.bootstrap, topic, batch_bytes=batch_bytes, seconds=seconds, warm_up=1
    )
    took_s = _processor_s(cluster) - before
    rows = [row for (name, _), row in cluster.leader_rows().items() if name == topic]
    assert all(len(row.replicas) == replicas for row in rows)
    assert len({row.leader for row in rows}) == len(cluster.brokers), "every broker leads one"
    cluster.delete_topic(topic)
    stored = sum(row.log_end_offset for row in rows)
    return {"batches/s": load["batches_per_s"], "us per batch": 1e6 * took_s / stored}


def _processor_s(cluster: Cluster) -> float:
    return sum(processor_s(one.process.pid) for one in cluster.brokers.values())


def main() -> int:
    """Prints the median, the smallest and the largest figure for each number of brokers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--batch-bytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        clusters = {one: stack.enter_context(cluster_of(one)) for one in arguments.brokers}
        shapes = [
            (brokers, replicas)
            for brokers in arguments.brokers
            for replicas in arguments.replicas
            if replicas <= brokers
        ]
        loads = [
            partial(load_once, clusters[one], replicas, arguments.batch_bytes, arguments.seconds)
            for one, replicas in shapes
        ]
        found = several_in_turn(arguments.rounds, loads)
    for (brokers, replicas), rounds in zip(shapes, found, strict=True):
        for name in rounds[0]:
            values = [one[name] for one in rounds]
            print(
                f"{brokers} brokers, {replicas} replicas, {name:14} {statistics.median(values):9.1f}"
                f"  [{min(values):.1f} .. {max(values):.1f}]"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
