"""Creation and deletion of a topic of many partitions in a cluster of three, beside Apache Kafka.

    python -m benchmarks.cluster_topics [--partitions 1000] [--rounds N] [--only echoless|kafka]

Three brokers of each kind on fresh data, one kind at a time, in turns; three replicas of each partition. A creation is
measured until its answer, and until each partition has taken a record with acks=all (Kafka answers before most of its
partitions take records); a deletion until its answer, and until no broker's metadata name the topic. Each is done
twice on a cluster: the first time much is imported, compiled and allocated. Processor time is that of the brokers,
and with Echoless of ZooKeeper.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.cluster_pairs import AnyCluster, Figures, compare, pids_of, spent_s
from benchmarks.many_partitions import delete, send

REPLICAS = 3
_TIMEOUT_S = 300.0
_SETTLING_S = 3.0
"""Time between two steps, for what goes on behind an answer."""


def measure(cluster: AnyCluster, partitions: int, figures: Figures) -> None:
    for turn in ("first", "second"):
        create_and_delete(cluster, partitions, turn, figures)


def create_and_delete(cluster: AnyCluster, partitions: int, turn: str, figures: Figures) -> None:
    """One creation and one deletion."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    # librdkafka fails what waits for a bootstrap address once it knows the brokers.
    admin.list_topics(timeout=_TIMEOUT_S)
    spent = partial(spent_s, pids_of(cluster))
    begun, begun_s = time.perf_counter(), spent()
    topic = NewTopic("many", num_partitions=partitions, replication_factor=REPLICAS)
    answers = admin.create_topics([topic], request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S)
    answers["many"].result(_TIMEOUT_S)
    figures.note(f"{turn} creation answered, s", time.perf_counter() - begun)
    send(cluster.bootstrap, "many", range(partitions))
    figures.note(f"{turn} creation, until each has a record, s", time.perf_counter() - begun)
    figures.note(f"{turn} creation, processor time, s", spent() - begun_s)
    time.sleep(_SETTLING_S)
    begun, begun_s = time.perf_counter(), spent()
    delete(admin, "many")
    figures.note(f"{turn} deletion answered, s", time.perf_counter() - begun)
    for address in cluster.bootstrap.split(","):
        each = AdminClient({"bootstrap.servers": address, "log_level": 0})
        while "many" in each.list_topics(timeout=_TIMEOUT_S).topics:
            time.sleep(0.01)
    figures.note(f"{turn} deletion, until no broker names it, s", time.perf_counter() - begun)
    time.sleep(_SETTLING_S)
    figures.note(f"{turn} deletion and 3 s more, processor time, s", spent() - begun_s)


if __name__ == "__main__":
    sys.exit(compare(__doc__, 1000, measure))
