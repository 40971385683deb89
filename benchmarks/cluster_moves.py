"""Stop, start, election and reassignment of many idle partitions in a cluster of three, beside Apache Kafka.

    python -m benchmarks.cluster_moves [--partitions 6000] [--rounds N] [--only echoless|kafka]

Three brokers of each kind on fresh data, one kind at a time, in turns; two replicas of each partition, a record in each. Then

*stop*: one broker stops in order, until another leads all that it has led;
*start*: it starts again, until it is in every ISR that it belongs to;
*election*: the preferred leaders of all partitions are asked for, until all of them lead;
*reassignment*: of each partition the second replica is moved to the broker that has none, in one request, until all are there.

The metadata of the brokers that stay say when a step has ended. Processor time is that of all brokers that run from the
beginning of a step to its end, and with Echoless of ZooKeeper.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from benchmarks.cluster_topics import Figures, fresh, pids_of
from benchmarks.many_partitions import processor_s, send
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.cluster import Cluster
from tests.support.raw_client import RawConnection, nested

TOPIC = "many"
BROKERS = (1, 2, 3)
STOPPED = 1
_TIMEOUT_S = 600.0
_SETTLING_S = 5.0


class Moves:
    """The steps, on one cluster."""

    def __init__(self, cluster: Cluster | ApacheKafkaCluster, partitions: int) -> None:
        self._partitions = partitions
        self._brokers: list[Any] = (
            [*cluster.brokers.values()] if isinstance(cluster, Cluster) else cluster.nodes
        )
        self._pids = pids_of(cluster)
        others = [one.kafka_address for one in self._brokers[STOPPED:]]
        self._bootstrap = cluster.bootstrap
        self._admin = AdminClient({"bootstrap.servers": ",".join(others), "log_level": 0})
        self.figures = Figures()

    def run(self) -> Figures:
        self._create()
        self._step("stop", self._stop, lambda row: row.leader not in {-1, STOPPED})
        self._step(
            "start", self._brokers[STOPPED - 1].start, lambda row: {*row.isrs} == {*row.replicas}
        )
        self._step(
            "election",
            lambda: asyncio.run(self._elect()),
            lambda row: row.leader == row.replicas[0],
        )
        wanted = {index: self._moved(index) for index in range(self._partitions)}
        self._step(
            "reassignment",
            lambda: asyncio.run(self._reassign(wanted)),
            lambda row: {*row.isrs} == {*row.replicas} == {*wanted[row.id]},
        )
        return self.figures

    def _create(self) -> None:
        self._admin.list_topics(timeout=_TIMEOUT_S)
        places = [list(self._replicas(index)) for index in range(self._partitions)]
        topic = NewTopic(TOPIC, self._partitions, replica_assignment=places)
        answers = self._admin.create_topics([topic], request_timeout=_TIMEOUT_S)
        answers[TOPIC].result(_TIMEOUT_S)
        send(self._bootstrap, TOPIC, range(self._partitions))
        time.sleep(_SETTLING_S)

    @staticmethod
    def _replicas(index: int) -> tuple[int, int]:
        return BROKERS[index % 3], BROKERS[(index + 1) % 3]

    def _moved(self, index: int) -> tuple[int, int]:
        return BROKERS[index % 3], BROKERS[(index + 2) % 3]

    def _step(
        self, name: str, begin: Callable[[], object], is_done: Callable[[PartitionMetadata], bool]
    ) -> None:
        """Begins it, and waits until it is done for every partition."""
        pids = [pid for pid in self._pids if name not in {"stop", "start"} or self._stays(pid)]
        begun, begun_s = time.perf_counter(), sum(map(processor_s, pids))
        begin()
        deadline = begun + _TIMEOUT_S
        while not self._is_so(is_done):
            assert time.perf_counter() < deadline, f"{name} takes too long"
            time.sleep(0.05)
        self.figures[f"{name}, s"] = time.perf_counter() - begun
        time.sleep(_SETTLING_S)
        self.figures[f"{name} and 5 s more, processor time, s"] = (
            sum(map(processor_s, pids)) - begun_s
        )
        if name == "start":
            self._pids[STOPPED - 1] = self._brokers[STOPPED - 1].process.pid

    def _stays(self, pid: int) -> bool:
        return pid != self._pids[STOPPED - 1]

    def _is_so(self, is_done: Callable[[PartitionMetadata], bool]) -> bool:
        rows = self._admin.list_topics(TOPIC, timeout=_TIMEOUT_S).topics[TOPIC].partitions
        return len(rows) == self._partitions and all(map(is_done, rows.values()))

    def _stop(self) -> None:
        self._brokers[STOPPED - 1].terminate()

    async def _elect(self) -> None:
        """Asks for all of them; that one leads already is the error of its row, and none of the request."""
        connection = await RawConnection.open(self._brokers[STOPPED].kafka_address)
        wait = datetime.timedelta(seconds=_TIMEOUT_S)
        async with asyncio.timeout(_TIMEOUT_S):
            response = await connection.call(
                "elect_leaders", 2, election_type=0, topic_partitions=None, timeout=wait
            )
        await connection.close()
        assert not response.error_code, response

    async def _reassign(self, wanted: dict[int, tuple[int, int]]) -> None:
        api = "alter_partition_reassignments"
        rows = tuple(
            nested(api, 0, "ReassignablePartition")(partition_index=index, replicas=replicas)
            for index, replicas in wanted.items()
        )
        topic = nested(api, 0, "ReassignableTopic")(name=TOPIC, partitions=rows)
        connection = await RawConnection.open(self._brokers[STOPPED].kafka_address)
        response = await connection.call(api, 0, topics=(topic,))
        await connection.close()
        assert not response.error_code, response
        failed = [row for one in response.responses for row in one.partitions if row.error_code]
        assert not failed, failed[0]


def run(kind: str, partitions: int) -> Figures:
    with fresh(kind) as cluster:
        found = Moves(cluster, partitions).run()
    print(f"{kind}: {found}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["echoless", "kafka"])
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else ["echoless", "kafka"]
    rounds = [
        {kind: run(kind, arguments.partitions) for kind in kinds} for _ in range(arguments.rounds)
    ]
    print(f"{arguments.partitions} partitions" + "".join(f"{kind:>12}" for kind in kinds))
    for name in rounds[0][kinds[0]]:
        medians = [statistics.median(one[kind][name] for one in rounds) for kind in kinds]
        print(f"{name:56}" + "".join(f"{value:12.2f}" for value in medians))


if __name__ == "__main__":
    main()
