"""A running broker's batches are those in its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.pipeline.batches import cluster_scan
from echoless.pipeline.batches.cluster_scan import plan_ranges, read_range
from echoless.pipeline.batches.data_directory import find_partitions, find_segment_ranges
from echoless.pipeline.batches.partition_leader import ClusterReadError
from echoless.pipeline.batches.segment_scan import SegmentScan

FROM_FILES = {"replica", "file", "position"}


def produce(address: str, topic: str, *, partitions: int = 2, records: int = 400) -> None:
    """Idempotent records on every partition of a new topic."""
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result()
    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "batch.num.messages": 7}
    )
    for number in range(records):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


def from_cluster(address: str, topic: str | None) -> list[dict[str, Any]]:
    ranges = plan_ranges(address, topic)
    return [row for one in ranges for batch in read_range(one) for row in batch.to_pylist()]


def from_files(data_dir: Path, topic: str) -> list[dict[str, Any]]:
    rows = []
    for part in find_partitions(data_dir):
        for segment_range in (
            find_segment_ranges("files", part, 1 << 40) if part.topic == topic else ()
        ):
            with SegmentScan(segment_range) as scan:
                rows += [row for batch in scan.rows() for row in batch.to_pylist()]
    return rows


def without(rows: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row.keys() - names} for row in rows]


def check_same_batches(monkeypatch: pytest.MonkeyPatch, address: str, data_dir: Path) -> None:
    """Checks that all batches come once, as in the files, with one range or many."""
    produce(address, "scanned")
    stored = from_files(data_dir, "scanned")
    assert sum(row["count"] for row in stored) == 400
    for range_offsets in (1_000_000, 10):
        monkeypatch.setattr(cluster_scan, "_RANGE_OFFSETS", range_offsets)
        fetched = from_cluster(address, "scanned")
        assert without(fetched, FROM_FILES) == without(stored, FROM_FILES)


def test_a_broker_shows_the_batches_of_its_files(echoless, monkeypatch):
    """Echoless."""
    check_same_batches(monkeypatch, echoless.kafka_address, echoless.data_dir)


@pytest.mark.kafka
def test_apache_kafka_shows_the_batches_of_its_files(apache_kafka, monkeypatch):
    """Apache Kafka."""
    check_same_batches(monkeypatch, apache_kafka.address, apache_kafka.data_dir)


def test_what_is_deleted_after_the_plan_is_not_missed(echoless, monkeypatch):
    """Reading goes on at the new start, whichever range it lies in, and a batch around it comes once."""
    produce(echoless.kafka_address, "deleted", partitions=1)
    stored = without(from_files(echoless.data_dir, "deleted"), FROM_FILES)
    monkeypatch.setattr(cluster_scan, "_RANGE_OFFSETS", 10)
    ranges = plan_ranges(echoless.kafka_address, "deleted")
    admin = AdminClient({"bootstrap.servers": echoless.kafka_address})
    for start in (1, 9, 10, 11, 123, 399, 400):
        part = TopicPartition("deleted", 0, start)
        for deleted in admin.delete_records([part]).values():
            deleted.result()
        fetched = [row for one in ranges for rows in read_range(one) for row in rows.to_pylist()]
        left = [row for row in stored if row["last_offset"] >= start]
        assert without(fetched, FROM_FILES) == left, start


def test_a_topic_that_does_not_exist_is_named(echoless):
    """Instead of an audit of nothing."""
    with pytest.raises(ClusterReadError, match="nothing-here"):
        plan_ranges(echoless.kafka_address, "nothing-here")
