"""A mirror of all topics that match, in a process of its own: new ones while it runs, transactions, settings, groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.mirror.group_offsets import ClusterGroups, GroupCommit
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.pipeline_process import PipelineProcess
from tests.pipeline.stored_records import count_stored, stored_records
from tests.toolchain import require

pytestmark = pytest.mark.spark

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.insync.replicas": "1"}


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[str, str]]:
    require("java", "spark-kafka")
    with BrokerThread(tmp_path / "source") as source, BrokerThread(tmp_path / "target") as target:
        yield source.address, target.address


def create(address: str, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result()


def produce(address: str, topic: str, partition: int, count: int) -> None:
    """Keyed records, a third of them without a value."""
    producer = Producer({"bootstrap.servers": address})
    for number in range(count):
        value = None if number % 3 == 0 else b"%d" % number
        producer.produce(topic, value, key=b"%d" % (number % 7), partition=partition)
    assert producer.flush(30) == 0


def write_transactions(address: str, topic: str, outcomes: list[bool]) -> None:
    """Ten records in each transaction; True commits it."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
    producer.init_transactions()
    for is_committed in outcomes:
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, b"%s %d" % (str(is_committed).encode(), number), partition=0)
        producer.flush()
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def settings_of(address: str, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": address})
    (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in found.result().items()}


def test_topics_that_match_are_mirrored_with_their_settings_and_groups(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    """Compacted ones and committed transactions too; topics and partitions that appear while it runs; not what is left out."""
    source, target = clusters
    create(source, "a.changes", 1, COMPACT)
    create(source, "a.transactions", 1)
    create(source, "a.left-out", 1)
    produce(source, "a.changes", 0, 50)
    produce(source, "a.left-out", 0, 5)
    write_transactions(source, "a.transactions", [True, False, True])
    changes = TopicPartition("a.changes", 0)
    with ClusterGroups(source) as groups:
        groups.commit("app", {changes: GroupCommit(50)})
        groups.commit("slow", {changes: GroupCommit(3)})
    arguments = ["mirror", "--from", source, "--to", target, "--topics-pattern", r"a\..*"]
    arguments += ["--exclude", ".*left-out", "--prefix", "west.", "--create-topics"]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--interval-s", "0.2"]
    arguments += ["--sync-groups", "app|slow", "--groups-interval-s", "1"]
    with PipelineProcess(*arguments, directory=tmp_path / "run") as run:
        run.wait_until(lambda: count_stored(target, "west.a.transactions", 1) == 20)
        create(source, "a.later", 2)
        produce(source, "a.later", 1, 8)
        admin = AdminClient({"bootstrap.servers": source})
        admin.create_partitions([NewPartitions("a.transactions", 2)])["a.transactions"].result()
        produce(source, "a.transactions", 1, 6)
        run.wait_until(lambda: count_stored(target, "west.a.later", 2) == 8)
        run.wait_until(lambda: count_stored(target, "west.a.transactions", 2) == 26)
        assert run.terminate() == 0, run.output
    values = [one.value for one in stored_records(target, "west.a.transactions", 0)]
    assert values == [b"True %d" % number for number in range(10)] * 2
    changed = [(one.key, one.value) for one in stored_records(target, "west.a.changes", 0)]
    assert changed == [(one.key, one.value) for one in stored_records(source, "a.changes", 0)]
    copied = settings_of(target, "west.a.changes")
    assert (copied["cleanup.policy"], copied["segment.bytes"]) == ("compact", "1048576")
    assert count_stored(target, "west.a.left-out", 1) == 0
    with ClusterGroups(target) as groups:
        copy = TopicPartition("west.a.changes", 0)
        assert groups.committed("app")[copy].offset == 50
        assert groups.committed("slow")[copy].offset == 0

    produce(source, "a.changes", 0, 20)
    with PipelineProcess(*arguments, "--once", directory=tmp_path / "run") as run:
        assert run.wait() == 0, run.output
        assert "mirror: continues at batch" in run.output
    assert count_stored(target, "west.a.changes", 1) == 70
