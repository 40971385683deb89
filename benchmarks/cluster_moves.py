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

import asyncio
import datetime
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from benchmarks.cluster_pairs import AnyCluster, Figures, compare, pids_of, spent_s
from benchmarks.many_partitions import send
from tests.support.cluster import Cluster
from tests.support.raw_client import RawConnection, nested

TOPIC = "many"
BROKERS = (1, 2, 3)
STOPPED = 1
_TIMEOUT_S = 600.0
_SETTLING_S = 5.0
_ASKED_AGAIN_S = 0.2
"""At least: metadata of thousands of partitions cost the brokers processor time, too, so a long step is asked about less often."""


class Moves:
    """The steps, on one cluster."""

    def __init__(self, cluster: AnyCluster, partitions: int, figures: Figures) -> None:
        self._partitions = partitions
        self._brokers: list[Any] = (
            [*cluster.brokers.values()] if isinstance(cluster, Cluster) else cluster.nodes
        )
        self._pids = pids_of(cluster)
        others = [one.kafka_address for one in self._brokers[STOPPED:]]
        self._bootstrap = cluster.bootstrap
        self._admin = AdminClient({"bootstrap.servers": ",".join(others), "log_level": 0})
        self._figures = figures

    def run(self) -> None:
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
        begun, begun_s = time.perf_counter(), spent_s(pids)
        begin()
        self._figures.note(f"{name}, until it is answered, s", time.perf_counter() - begun)
        while not self._is_so(is_done):
            passed_s = time.perf_counter() - begun
            assert passed_s < _TIMEOUT_S, f"{name} takes too long"
            time.sleep(max(_ASKED_AGAIN_S, passed_s / 20))
        self._figures.note(f"{name}, until it is done, s", time.perf_counter() - begun)
        time.sleep(_SETTLING_S)
        self._figures.note(f"{name} and 5 s more, processor time, s", spent_s(pids) - begun_s)
        if name == "start":
            self._pids[STOPPED - 1] = self._brokers[STOPPED - 1].process.pid

    def _stays(self, pid: int) -> bool:
        return pid != self._pids[STOPPED - 1]

    def _is_so(self, is_done: Callable[[PartitionMetadata], bool]) -> bool:
        rows = self._admin.list_topics(TOPIC, timeout=_TIMEOUT_S).topics[TOPIC].partitions
        return len(rows) == self._partitions and all(map(is_done, rows.values()))

    def _stop(self) -> None:
        self._brokers[STOPPED - 1].process.terminate(within_s=_TIMEOUT_S)

    async def _elect(self) -> None:
        """Asks for all of them; that one leads already is the error of its row, and none of the request."""
        connection = await self._connect()
        wait = datetime.timedelta(seconds=_TIMEOUT_S)
        response = await connection.call(
            "elect_leaders", 2, election_type=0, topic_partitions=None, timeout=wait
        )
        await connection.close()
        assert not response.error_code, response

    async def _connect(self) -> RawConnection:
        connection = await RawConnection.open(self._brokers[STOPPED].kafka_address)
        connection.answer_timeout_s = _TIMEOUT_S
        return connection

    async def _reassign(self, wanted: dict[int, tuple[int, int]]) -> None:
        api = "alter_partition_reassignments"
        rows = tuple(
            nested(api, 0, "ReassignablePartition")(partition_index=index, replicas=replicas)
            for index, replicas in wanted.items()
        )
        topic = nested(api, 0, "ReassignableTopic")(name=TOPIC, partitions=rows)
        connection = await self._connect()
        response = await connection.call(api, 0, topics=(topic,))
        await connection.close()
        assert not response.error_code, response
        failed = [row for one in response.responses for row in one.partitions if row.error_code]
        assert not failed, failed[0]


def measure(cluster: AnyCluster, partitions: int, figures: Figures) -> None:
    Moves(cluster, partitions, figures).run()


if __name__ == "__main__":
    sys.exit(compare(__doc__, 6000, measure))
