"""The cost of two followers, whether they keep up, and Apache Kafka with the same three brokers.

    python -m benchmarks.replication [cost] [keeping-up] [catching-up] [versus-kafka]
                                     [--rounds N] [--seconds S]

cost          one replica against three, on the same cluster, at acks=1 and acks=all
keeping-up    at acks=1 no one waits for the followers: how far do they lag when the load ends,
              with Echoless and with Kafka?
catching-up   a follower that missed a gigabyte: how fast does it fetch, against the leader's own pace?
versus-kafka  three replicas, acks=all, idempotent: Echoless with ZooKeeper against Kafka with KRaft

Client, brokers and ZooKeeper share one machine, so a replica costs processor time, not only
waiting.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.own_topic import DELETES_SOON, KAFKA_DELETES_SOON, own_topic
from benchmarks.pairs import Pair, in_turn, print_pair, run_load
from benchmarks.versus_kafka import KAFKA_JVM
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.cluster import Cluster

BATCH_BYTES = (1_000, 16_000, 1_000_000)
_SETTINGS: Final = {"message_max_bytes": "2000000", **DELETES_SOON}
_KAFKA: Final = {
    "message.max.bytes": "2000000",
    "replica.fetch.max.bytes": "2000000",
    **KAFKA_DELETES_SOON,
}
_LOAD_BYTES_MAX: Final = 6 * 1024**3
"""More than one load writes on three brokers."""
_LAG_TIMEOUT_S: Final = 60.0
_CATCH_UP_BYTES = 1_000_000_000
_CATCH_UP_BATCH_BYTES = 1_000_000


@contextmanager
def cluster_of_three() -> Iterator[Cluster]:
    """Three brokers on fresh data, with the default session timeout."""
    directory = Path(tempfile.mkdtemp(prefix="replication-"))
    try:
        with Cluster(directory, _SETTINGS) as cluster:
            cluster.start()
            yield cluster
    finally:
        shutil.rmtree(directory)


def cost(rounds: int, seconds: float) -> dict[str, Pair]:
    """Batches/s to one replica and to three, by acks and batch size. Plain: acks=1 allows no other."""
    figures = {}
    with cluster_of_three() as cluster:
        for acks in ("1", "all"):
            for batch_bytes in BATCH_BYTES:
                options = {"batch_bytes": batch_bytes, "acks": acks, "plain": True}
                pairs = replicas_in_turn(cluster, rounds, seconds, options)
                name = f"acks={acks}, {batch_bytes} B batches, batches/s"
                figures[name] = pairs["batches_per_s"]
                print_pair(name, pairs["batches_per_s"], "3 replicas", "1 replica")
    return figures


def replicas_in_turn(
    cluster: Cluster, rounds: int, seconds: float, options: dict[str, Any]
) -> dict[str, Pair]:
    """Three replicas first, one second; each run on a separate topic, deleted afterwards."""
    numbers = iter(range(2 * rounds))

    def run(replicas: int) -> dict[str, float]:
        topic = f"replicas-{replicas}-{next(numbers)}-{options['acks']}-{options['batch_bytes']}"
        cluster.create_topic(topic, 1, replicas=replicas)
        answer = run_load("throughput", cluster.bootstrap, topic, seconds=seconds, **options)
        cluster.delete_topic(topic)
        return answer

    return in_turn(rounds, lambda: run(3), lambda: run(1))


def keeping_up(rounds: int, seconds: float) -> dict[str, Pair]:
    """Megabytes that the slowest follower lacks when the load ends, and ms until it lacks none."""
    figures = {}
    with beside_kafka() as (cluster, kafka):
        for batch_bytes in BATCH_BYTES:
            options = {"batch_bytes": batch_bytes, "acks": "1", "plain": True, "seconds": seconds}
            pairs = in_turn(
                rounds, partial(keep_up, cluster, options), partial(keep_up, kafka, options)
            )
            for figure, pair in pairs.items():
                name = f"followers at acks=1, {batch_bytes} B batches, {figure}"
                figures[name] = pair
                print_pair(name, pair)
    return figures


@contextmanager
def beside_kafka() -> Iterator[tuple[Cluster, ApacheKafkaCluster]]:
    """Three brokers of each kind on fresh data."""
    directory = Path(tempfile.mkdtemp(prefix="replication-kafka-"))
    try:
        with (
            cluster_of_three() as cluster,
            ApacheKafkaCluster(directory, _KAFKA, jvm=KAFKA_JVM) as kafka,
        ):
            kafka.start()
            yield cluster, kafka
    finally:
        shutil.rmtree(directory)


def keep_up(cluster: Cluster | ApacheKafkaCluster, options: dict[str, Any]) -> dict[str, float]:
    """One load, and how far the followers are behind when it ends."""
    data_dirs = data_dirs_of(cluster)
    with own_topic(cluster.bootstrap, data_dirs, _LOAD_BYTES_MAX) as topic:
        cluster.create_topic(topic, 1)
        load = run_load("throughput", cluster.bootstrap, topic, **options)
        ended, lag = time.perf_counter(), lag_bytes(data_dirs, topic)
        found = {"MB/s": load["megabytes_per_s"], "MB behind": lag / 1e6}
        while lag_bytes(data_dirs, topic):
            assert time.perf_counter() < ended + _LAG_TIMEOUT_S, "the followers do not catch up"
            time.sleep(0.005)
        return {**found, "ms until level": 1000 * (time.perf_counter() - ended)}


def data_dirs_of(cluster: Cluster | ApacheKafkaCluster) -> list[Path]:
    brokers = cluster.brokers.values() if isinstance(cluster, Cluster) else cluster.nodes
    return [one.data_dir for one in brokers]


def lag_bytes(data_dirs: list[Path], topic: str) -> int:
    """The difference between the longest and the shortest log of the topic's partition 0, by their files."""
    sizes = [sum(log.stat().st_size for log in one.glob(f"{topic}-0/*.log")) for one in data_dirs]
    return max(sizes) - min(sizes)


def lag_of(cluster: Cluster, topic: str) -> int:
    """Records between the ends of the longest and the shortest log."""
    ends = [
        row.log_end_offset
        for broker_id in cluster.live
        for row in cluster.rows(broker_id)
        if row.topic == topic
    ]
    return max(ends) - min(ends)


def catching_up(rounds: int, _seconds: float) -> dict[str, Pair]:
    """MB/s of a follower that was away, compared with MB/s of the client that wrote what it missed."""
    pairs: list[tuple[float, float]] = []
    with cluster_of_three() as cluster:
        for number in range(rounds):
            pairs.append(catch_up_once(cluster, f"missed-{number}"))
            followed, produced = pairs[-1]
            print(f"caught up at {followed:.0f} MB/s, produced at {produced:.0f} MB/s", flush=True)
    return {}


def catch_up_once(cluster: Cluster, topic: str) -> tuple[float, float]:
    """Stops a follower, writes a gigabyte at acks=all to the others, and starts it again."""
    cluster.create_topic(topic, 1)
    leader = cluster.wait_for_leader(topic, 0)
    follower = next(one for one in cluster.brokers if one != leader)
    cluster.stop(follower)
    written = 0
    while written < _CATCH_UP_BYTES:
        load = run_load(
            "throughput",
            cluster.bootstrap,
            topic,
            batch_bytes=_CATCH_UP_BATCH_BYTES,
            seconds=2,
            warm_up=0,
        )
        written = cluster.leader_rows()[topic, 0].size_bytes
    cluster.start_broker(follower)
    started = time.perf_counter()
    cluster.wait_until(lambda: lag_of(cluster, topic) == 0, "caught up")
    followed = written / (time.perf_counter() - started) / 1e6
    cluster.wait_until(cluster.is_in_sync, "in sync again")
    cluster.delete_topic(topic)
    return followed, load["megabytes_per_s"]


def versus_kafka(rounds: int, seconds: float) -> dict[str, Pair]:
    """Acknowledged batches/s of an idempotent producer, three replicas."""
    figures = {}
    with beside_kafka() as (cluster, kafka):
        for batch_bytes in BATCH_BYTES:
            options = {"batch_bytes": batch_bytes, "seconds": seconds}
            pairs = in_turn(
                rounds, partial(replicate, cluster, options), partial(replicate, kafka, options)
            )
            name = f"three replicas, {batch_bytes} B batches, batches/s"
            figures[name] = pairs["batches_per_s"]
            print_pair(name, pairs["batches_per_s"])
    return figures


def replicate(cluster: Cluster | ApacheKafkaCluster, options: dict[str, Any]) -> dict[str, float]:
    with own_topic(cluster.bootstrap, data_dirs_of(cluster), _LOAD_BYTES_MAX) as topic:
        cluster.create_topic(topic, 1)
        return run_load("throughput", cluster.bootstrap, topic, **options)


MEASUREMENTS = {
    "cost": cost,
    "keeping-up": keeping_up,
    "catching-up": catching_up,
    "versus-kafka": versus_kafka,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(MEASUREMENTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, Pair] = {}
    for name in arguments.what:
        figures |= MEASUREMENTS[name](arguments.rounds, arguments.seconds)
    if arguments.json:
        arguments.json.write_text(json.dumps({k: asdict(v) for k, v in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
