"""Creation and deletion of a topic of many partitions in a cluster of three, beside Apache Kafka.

    python -m benchmarks.cluster_topics [--partitions 1000] [--rounds N] [--only echoless|kafka]

Three brokers of each kind on fresh data, one kind at a time, in turns; three replicas of each partition. A creation is
measured until its answer, and until each partition has taken a record with acks=all (Kafka answers before most of its
partitions take records); a deletion until its answer, and until no broker's metadata name the topic. Each is done
twice on a cluster: the first time much is imported, compiled and allocated. Processor time is that of the brokers,
and with Echoless of ZooKeeper.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.many_partitions import delete, processor_s, send
from benchmarks.versus_kafka import KAFKA_JVM
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.cluster import Cluster

REPLICAS = 3
_TIMEOUT_S = 300.0
_SETTLING_S = 3.0
"""Time between two steps, for what goes on behind an answer."""

Figures = dict[str, float]


@contextmanager
def fresh(kind: str) -> Iterator[Cluster | ApacheKafkaCluster]:
    """Three brokers on new data directories."""
    directory = Path(tempfile.mkdtemp(prefix=f"cluster-topics-{kind}-"))
    settings = {"auto.create.topics.enable": "false"}
    made: Cluster | ApacheKafkaCluster = (
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


def pids_of(cluster: Cluster | ApacheKafkaCluster) -> list[int]:
    if isinstance(cluster, Cluster):
        brokers = [broker.process.pid for broker in cluster.brokers.values()]
        return [*brokers, cluster.zookeeper.process.pid]
    return [one.process.pid for one in cluster.nodes]


def measure(cluster: Cluster | ApacheKafkaCluster, partitions: int) -> Figures:
    """One creation and one deletion."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    # librdkafka fails what waits for a bootstrap address once it knows the brokers.
    admin.list_topics(timeout=_TIMEOUT_S)
    pids, figures = pids_of(cluster), Figures()

    def spent_s() -> float:
        return sum(map(processor_s, pids))

    begun, begun_s = time.perf_counter(), spent_s()
    topic = NewTopic("many", num_partitions=partitions, replication_factor=REPLICAS)
    answers = admin.create_topics([topic], request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S)
    answers["many"].result(_TIMEOUT_S)
    figures["creation answered, s"] = time.perf_counter() - begun
    send(cluster.bootstrap, "many", range(partitions))
    figures["creation, until each has a record, s"] = time.perf_counter() - begun
    figures["creation, processor time, s"] = spent_s() - begun_s
    time.sleep(_SETTLING_S)
    begun, begun_s = time.perf_counter(), spent_s()
    delete(admin, "many")
    figures["deletion answered, s"] = time.perf_counter() - begun
    for address in cluster.bootstrap.split(","):
        each = AdminClient({"bootstrap.servers": address, "log_level": 0})
        while "many" in each.list_topics(timeout=_TIMEOUT_S).topics:
            time.sleep(0.01)
    figures["deletion, until no broker names it, s"] = time.perf_counter() - begun
    time.sleep(_SETTLING_S)
    figures["deletion and 3 s more, processor time, s"] = spent_s() - begun_s
    return figures


def run(kind: str, partitions: int) -> dict[str, Figures]:
    with fresh(kind) as cluster:
        found = {name: measure(cluster, partitions) for name in ("first", "second")}
    print(f"{kind}: {found}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["echoless", "kafka"])
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else ["echoless", "kafka"]
    rounds = [
        {kind: run(kind, arguments.partitions) for kind in kinds} for _ in range(arguments.rounds)
    ]
    print(f"{arguments.partitions} partitions" + "".join(f"{kind:>12}" for kind in kinds))
    for turn in ("first", "second"):
        for name in rounds[0][kinds[0]][turn]:
            medians = [statistics.median(one[kind][turn][name] for one in rounds) for kind in kinds]
            print(f"{turn + ' ' + name:56}" + "".join(f"{value:12.2f}" for value in medians))


if __name__ == "__main__":
    main()
