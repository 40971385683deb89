"""Requests and processor time of one round of `--sync-groups` and one batch, by number of topics and groups.

    python -m benchmarks.mirror_groups [--topics 1000] [--groups 100 500]

Source and target are brokers in processes of their own. Each topic has one partition, and each group has committed in ten topics. One
topic has traffic, and one group follows it. Figures of `docs/mirror.md`: requests from the brokers' metrics, processor time from /proc.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.many_partitions import processor_s
from echoless.client.security import NO_SECURITY
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.mirror.group_offsets import ClusterGroups, GroupCommit
from echoless.pipeline.mirror.group_sync import GroupSync, SyncedCluster
from tests.support.echoless import Echoless

_COUNT = re.compile(r'^echoless_request_seconds_count{api="(\w+)"} (\S+)$', re.MULTILINE)
_GROUP_TOPICS = 10


class Cost(NamedTuple):
    """Counters so far."""

    requests: tuple[Counter[str], Counter[str]]
    mirror_s: float
    brokers_s: tuple[float, float]


class Pair(NamedTuple):
    source: Echoless
    target: Echoless

    def cost(self) -> Cost:
        """Reads the counters of both brokers, and of this process."""
        counts = tuple(requests_of(one) for one in self)
        seconds = tuple(processor_s(one.process.pid) for one in self)
        return Cost((counts[0], counts[1]), time.process_time(), (seconds[0], seconds[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, nargs="+", default=[100])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        pair = Pair(*(Echoless(Path(directory) / name) for name in ("source", "target")))
        try:
            names = [f"t.{number:05}" for number in range(options.topics)]
            for one in pair:
                one.start()
                create_topics(one.kafka_address, names)
            for count in options.groups:
                measure(pair, names, count)
        finally:
            for one in pair:
                one.kill()


def measure(pair: Pair, names: list[str], count: int) -> None:
    """Plays a first round, and prints what an idle one and one with traffic cost."""
    addresses = [one.kafka_address for one in pair]
    with ClusterGroups(addresses[0]) as groups:
        for number in range(count):
            some = [names[(number * _GROUP_TOPICS + n) % len(names)] for n in range(_GROUP_TOPICS)]
            groups.commit(f"g{number}", {TopicPartition(one, 0): GroupCommit(0) for one in some})
    source, target = (SyncedCluster(servers=one, security=NO_SECURITY) for one in addresses)
    sync = GroupSync(source=source, target=target, name="m", pattern=".*", prefix="", interval_s=60)
    sync.note_batch({name: {0: 0} for name in names}, lambda: True)
    sync.sync()
    before = pair.cost()
    sync.sync()
    idle = pair.cost()
    _produce(addresses[1], names[0])
    with ClusterGroups(addresses[0]) as groups:
        groups.commit("g0", {TopicPartition(names[0], 0): GroupCommit(count)})
    begun = pair.cost()
    sync.note_batch({names[0]: {0: count}}, lambda: True)
    noted = pair.cost()
    sync.sync()
    print(f"{len(names)} topics, {count} groups")
    _show("idle round", before, idle)
    _show("batch", begun, noted)
    _show("round with one group that moved", noted, pair.cost())


def _show(name: str, before: Cost, after: Cost) -> None:
    print(f"  {name}: mirror {(after.mirror_s - before.mirror_s) * 1000:.0f} ms")
    sides = zip(("source", "target"), before.requests, after.requests, strict=True)
    for (side, one, other), s, t in zip(sides, before.brokers_s, after.brokers_s, strict=True):
        counts = other - one
        text = ", ".join(f"{api} {n}" for api, n in sorted(counts.items()))
        print(f"    {side}: {counts.total()} requests, {(t - s) * 1000:.0f} ms: {text}")


def create_topics(address: str, names: list[str]) -> None:
    """Creates topics of one partition, some hundred with each request."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for first in range(0, len(names), 200):
        wanted = [NewTopic(name, 1, 1) for name in names[first : first + 200]]
        for made in admin.create_topics(wanted, request_timeout=120).values():
            made.result()


def _produce(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    producer.produce(topic, b"1", partition=0)
    assert producer.flush(60) == 0


def requests_of(broker: Echoless) -> Counter[str]:
    """Reads the number of requests of each API since the start."""
    with urllib.request.urlopen(f"http://{broker.admin_address}/metrics", timeout=60) as answer:
        return Counter({api: int(float(n)) for api, n in _COUNT.findall(answer.read().decode())})


if __name__ == "__main__":
    main()
