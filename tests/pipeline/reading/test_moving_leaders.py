"""The reader while leaders of three brokers are killed or moved: every record once, and no error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from echoless.client.cluster import parse_addresses
from echoless.client.connection import BrokerConnection
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.reading.batch_reader import plan_job
from echoless.pipeline.reading.options import read_reader_options
from echoless.pipeline.reading.span_rows import read_span
from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.pipeline.reading.written import WITHIN_S
from tests.support.cluster import Cluster, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.crash, pytest.mark.slow]

_LEADER: Final = 1
_RECORDS: Final = 400
_SLOW_MS: Final = 100
_QUERY_S: Final = 240.0
_SMALL: Final = {"kafka.max.partition.fetch.bytes": "3000"}
"""A fetch for each batch or two, so that there are many."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: Any) -> Iterator[Cluster]:
    with running_cluster(
        tmp_path_factory.mktemp("leaders"), zookeeper_session_timeout_ms="2000"
    ) as running:
        yield running


def write(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    """Creates the topic with broker 1 as leader, and writes batches of 20 records."""
    cluster.create_topic(topic, partitions, leader=_LEADER)
    producer = Producer({**cluster.client_settings(), "batch.num.messages": 20, "linger.ms": 50})
    for number in range(_RECORDS):
        for partition in range(partitions):
            producer.produce(topic, b"%100d" % number, partition=partition)
    assert producer.flush(WITHIN_S) == 0


def kill(cluster: Cluster, topic: str) -> None:
    """Kills the leader; it stays down."""
    cluster.kill(_LEADER)
    cluster.wait_for_leader(topic, 0, other_than=_LEADER)


def reassign(cluster: Cluster, topic: str) -> None:
    """Takes its replica from the leader; returns when it holds nothing of the topic."""
    alter(cluster, topic, [2, 3])
    cluster.wait_until(
        lambda: all(row[:2] != (topic, 0) for row in cluster.rows(_LEADER)), "the replica is gone"
    )


def elect(cluster: Cluster, topic: str) -> None:
    """Makes another replica the preferred one, and elects it."""
    alter(cluster, topic, [2, 1, 3])
    partitions = [{"topic": topic, "partitions": [0]}]
    fields = {"election_type": 0, "topic_partitions": partitions, "timeout": 10_000}
    with BrokerConnection.open(*parse_addresses(cluster.bootstrap)[0]) as connection:
        connection.request("elect_leaders", fields)
    assert cluster.wait_for_leader(topic, 0, other_than=_LEADER) == 2


def alter(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    partition = {"partition_index": 0, "replicas": replicas}
    fields = {"timeout": 10_000, "topics": [{"name": topic, "partitions": [partition]}]}
    with BrokerConnection.open(*parse_addresses(cluster.bootstrap)[0]) as connection:
        answer = connection.request("alter_partition_reassignments", fields)
    assert answer.responses[0].partitions[0].error_code.value == 0

    def is_so() -> bool:
        row = cluster.leader_rows().get((topic, 0))
        return row is not None and row.isr == row.replicas == {*replicas}

    cluster.wait_until(is_so, f"{replicas} are in sync")


_WAYS: Final[dict[str, Callable[[Cluster, str], None]]] = {
    "killed": kill,
    "reassigned": reassign,
    "elected": elect,
}


@pytest.fixture
def heal(cluster: Cluster) -> Iterator[None]:
    """Starts the broker that was killed."""
    yield
    if _LEADER not in cluster.live:
        cluster.start_broker(_LEADER)
        cluster.wait_until(cluster.is_in_sync, "the killed broker has caught up")


@pytest.mark.parametrize("way", _WAYS)
def test_a_task_goes_on_at_the_new_leader(cluster: Cluster, heal: None, way: str) -> None:
    """Even if the only bootstrap server is the one that was killed: metadata has named others."""
    topic = f"span-{way}"
    write(cluster, topic)
    servers = {"kafka.bootstrap.servers": cluster.brokers[_LEADER].kafka_address}
    options = read_reader_options({**servers, **_SMALL, "subscribe": topic}, is_stream=False)
    (span,) = plan_job(options)
    rows = read_span(options, span)
    batches = [next(rows)]
    _WAYS[way](cluster, topic)
    batches += rows
    offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert offsets == list(range(_RECORDS))
    assert len(batches) > 2, "it had not read everything before"


@pytest.mark.spark
@pytest.mark.parametrize("way", ["killed", "reassigned"])
def test_jobs_and_streams_do_not_notice(
    cluster: Cluster, heal: None, spark: Any, tmp_path: Path, way: str
) -> None:
    """The leader moves while their tasks fetch from it: each record once, in both."""
    register(spark)
    servers = {"kafka.bootstrap.servers": cluster.bootstrap}
    topics = [f"job-{way}", f"stream-{way}"]
    found: list[tuple[int, int]] = []
    errors: list[object] = []

    def read_job() -> None:
        reader = spark.read.format("echoless").options(**servers, **_SMALL, subscribe=topics[0])
        rows = reader.load().select("partition", "offset").collect()
        found.extend((row.partition, row.offset) for row in rows)

    def read_stream() -> None:
        reader = spark.readStream.format("echoless").options(**servers, **_SMALL)
        given = {"subscribe": topics[1], "startingOffsets": "earliest"}
        frame = reader.options(**given, maxOffsetsPerTrigger="200").load()
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).foreachBatch(take).start()
        assert query.awaitTermination(_QUERY_S)

    def take(frame: Any, _: int) -> None:
        rows = frame.select("partition", "offset").collect()
        found.extend((row.partition, row.offset) for row in rows)

    for read, topic in zip((read_job, read_stream), topics, strict=True):
        found.clear()
        write(cluster, topic, partitions=2)
        faults = Faults(Admin(cluster.brokers[_LEADER].admin_address))
        slow = {"type": "delay_response", "ms": [_SLOW_MS, _SLOW_MS]}
        rule = faults.add(slow, match={"api": "fetch", "topic": topic})
        reading = threading.Thread(target=_noting(read, errors))
        reading.start()
        rule.wait_for_hits(4, _QUERY_S)
        _WAYS[way](cluster, topic)
        reading.join(_QUERY_S)
        assert not reading.is_alive()
        assert errors == []
        expected = [(partition, offset) for partition in range(2) for offset in range(_RECORDS)]
        assert sorted(found) == expected
        if _LEADER not in cluster.live:
            cluster.start_broker(_LEADER)
            cluster.wait_until(cluster.is_in_sync, "the killed broker has caught up")


def _noting(work: Callable[[], None], errors: list[object]) -> Callable[[], None]:
    """The work, for a thread: what it raises is noted."""

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the test shows it
            errors.append(error)

    return run
