"""A log that Apache Kafka has cleaned: its files do not meet, and that is no problem."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.pipeline.audit.findings import FindingKind, Severity
from echoless.pipeline.audit.log_checkpoints import read_checkpoints
from tests.pipeline.audit.without_spark import judge_logs, read_batches
from tests.support.apache_kafka import ApacheKafka
from tests.toolchain import require

pytestmark = pytest.mark.kafka

CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "1000",
    "min.cleanable.dirty.ratio": "0",
}
PATIENCE_S = 120.0


def produce_and_clean(kafka: ApacheKafka, topic: str, records: int = 200) -> None:
    """Writes a record in each batch; returns when the cleaner has been there."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(topic, 1, 1, config=CONFIG)])[topic].result()
    producer = Producer({"bootstrap.servers": kafka.address, "batch.num.messages": 1})
    for number in range(records):
        key = b"%d" % (number % 5 if number % 7 else 100 + number)
        producer.produce(topic, b"x" * 60, key=key, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    deadline = time.monotonic() + PATIENCE_S
    while (str(kafka.data_dir), topic, 0) not in read_checkpoints([str(kafka.data_dir)]).cleaned:
        assert time.monotonic() < deadline, "the cleaner never came"
        time.sleep(0.1)


def test_holes_between_files_that_kafka_has_cleaned_are_a_note(tmp_path: Path):
    """Its compaction removes the last batch of a file, too; Echoless's keeps it."""
    require("java", "kafka")
    kafka = ApacheKafka(
        tmp_path, {"log.cleaner.backoff.ms": "1000", "log.initial.task.delay.ms": "0"}
    )
    kafka.start()
    try:
        produce_and_clean(kafka, "prices")
    finally:
        kafka.kill()
    path = str(kafka.data_dir)
    key = (path, "prices", 0)
    checkpoints = read_checkpoints([path])
    assert checkpoints.compaction[key]
    found = list(
        judge_logs(
            read_batches(kafka.data_dir), is_compacted=True, files_meet=key in checkpoints.meeting
        )
    )
    assert [(one.severity, one.kind) for one in found] == [(Severity.NOTE, FindingKind.OFFSET_GAP)]
    gap, *_ = judge_logs(read_batches(kafka.data_dir), is_compacted=True)
    assert gap.severity == Severity.PROBLEM, "there is a hole between two files"
