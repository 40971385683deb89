"""A topic of many partitions in which nothing happens while things break: one record in each, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tests.nemesis.replica_logs import first_difference, read_batches
from tests.support.cluster import Cluster

TOPIC: Final = "idle"
_SHOWN: Final = 5


class IdleTopic:
    """The topic, in a cluster of three whose replicas hold all of it."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def create(self, cluster: Cluster) -> None:
        """Creates it, and writes a record to each partition, acknowledged by its ISR."""
        cluster.create_topic(TOPIC, self._partitions, min_insync_replicas=2)
        producer = Producer(cluster.client_settings() | {"acks": "all", "enable.idempotence": True})
        failed: list[str] = []
        for partition in range(self._partitions):
            producer.produce(
                TOPIC,
                b"%d" % partition,
                partition=partition,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
        assert not producer.flush(60.0)
        assert not failed, failed[:_SHOWN]

    def problems(self, replicas: Mapping[int, Path]) -> list[str]:
        """Names partitions that are not as they should be on the disks of the stopped brokers, the first ones."""
        return [*islice(self._problems(replicas), _SHOWN)]

    def _problems(self, replicas: Mapping[int, Path]) -> Iterator[str]:
        for partition in range(self._partitions):
            difference = first_difference(replicas, TOPIC, partition)
            if difference is not None:
                yield f"{TOPIC}-{partition}: {difference}"
            for broker_id, data_dir in replicas.items():
                batches = [*read_batches(data_dir, TOPIC, partition)]
                values = [b"%d" % partition in batch.data for batch in batches]
                if values != [True]:
                    yield f"{TOPIC}-{partition} on broker {broker_id}: {len(batches)} batches, not the one sent"
