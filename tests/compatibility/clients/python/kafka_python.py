"""kafka-python as a client program; see tests/compatibility/README.md."""

from __future__ import annotations

import threading
import time
from typing import Any

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.compatibility.clients.python.membership import Membership
from tests.compatibility.clients.python.program import STORED, Case, Consume, Produce, main
from tests.compatibility.clients.python.records import Record
from tests.compatibility.clients.python.security import kafka_python_settings

_PENDING_RECORDS_MAX = 5_000
_CLOSE_TIMEOUT_S = 60
_ATTEMPT_TIMEOUT_MS = 15_000
_POLL_MS = 200
_COMMIT_TIMEOUT_MS = 10_000
_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


def produce(run: Produce) -> None:
    """Writes the records; callbacks come from the client's own thread."""
    options = run.options
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        enable_idempotence=True,
        compression_type=None if options.codec == "none" else options.codec,
        linger_ms=options.linger_ms,
        request_timeout_ms=options.request_timeout_ms,
        delivery_timeout_ms=options.delivery_timeout_ms,
        **kafka_python_settings(options.security),
    )
    room = threading.Semaphore(_PENDING_RECORDS_MAX)
    for wait, record in run.records():
        time.sleep(wait)
        room.acquire()
        _send(run, producer, record, room)
    producer.flush()
    producer.close(timeout=_CLOSE_TIMEOUT_S)


def _send(run: Produce, producer: KafkaProducer, record: Record, room: threading.Semaphore) -> None:
    def acknowledged(metadata: Any) -> None:
        room.release()
        run.acknowledged(record.partition, metadata.offset, record.number)

    def failed(error: BaseException) -> None:
        room.release()
        run.failed(type(error).__name__)

    future = producer.send(
        run.options.topic,
        value=record.value,
        key=record.key,
        headers=record.headers,
        partition=record.partition,
        timestamp_ms=record.timestamp,
    )
    future.add_callback(acknowledged)
    future.add_errback(failed)


def consume(run: Consume) -> None:
    """Reads each partition from its first offset to its end."""
    options = run.options
    partitions = [TopicPartition(options.topic, p) for p in range(options.partitions)]
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        check_crcs=True,
        enable_auto_commit=False,
        **kafka_python_settings(options.security),
    )
    consumer.assign(partitions)
    begins = consumer.beginning_offsets(partitions)
    ends = consumer.end_offsets(partitions)
    for partition in partitions:
        run.begin(partition.partition, begins[partition], ends[partition])
        consumer.seek(partition, begins[partition])
    while not run.is_over:
        for records in consumer.poll(timeout_ms=200).values():
            for r in records:
                run.add(r.partition, r.offset, r.timestamp, r.key, r.value, list(r.headers))
    consumer.close()


def attempt(case: Case) -> str:
    """Starts a producer and stores one record; whatever it raises is the outcome."""
    producer = KafkaProducer(
        bootstrap_servers=case.bootstrap,
        enable_idempotence=True,
        bootstrap_timeout_ms=_ATTEMPT_TIMEOUT_MS,
        max_block_ms=_ATTEMPT_TIMEOUT_MS,
        **kafka_python_settings(case.security),
    )
    try:
        producer.send(case.topic, b"x", partition=0).get(timeout=_ATTEMPT_TIMEOUT_MS / 1000)
    finally:
        producer.close(timeout=0)
    return STORED


class _Rebalances(ConsumerRebalanceListener):
    def __init__(self, run: Membership, consumer: KafkaConsumer) -> None:
        self._run = run
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._run.revoked(one.partition for one in revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        generation = self._consumer._coordinator._generation.generation_id
        self._run.assigned(generation, [one.partition for one in assigned])


def subscribe(run: Membership) -> None:
    """Reads as a member of the group, and commits after each poll."""
    options = run.options
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap.split(","),
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[_ASSIGNORS[options.assignor]],
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.session_timeout_ms // 10,
        max_poll_interval_ms=30_000,
        metadata_max_age_ms=5_000,
    )
    consumer.subscribe([options.topic], listener=_Rebalances(run, consumer))
    while not run.is_over:
        try:
            found = consumer.poll(timeout_ms=_POLL_MS, max_records=100)
        except KafkaError as error:  # such as a broker that has just left the metadata
            run.failed(repr(error))
            continue
        for place, records in found.items():
            for record in records:
                run.record(place.partition, record.offset, record.value)
        ends = {place: records[-1].offset + 1 for place, records in found.items() if records}
        if ends:
            _commit(run, consumer, ends)
    consumer.close()


def _commit(run: Membership, consumer: KafkaConsumer, ends: dict[TopicPartition, int]) -> None:
    offsets = {place.partition: end for place, end in ends.items()}
    run.committing(offsets)
    wanted = {place: OffsetAndMetadata(end, "", -1) for place, end in ends.items()}
    try:
        consumer.commit(wanted, timeout_ms=_COMMIT_TIMEOUT_MS)
    except KafkaError as error:
        run.failed(repr(error))
    else:
        run.committed(offsets)


if __name__ == "__main__":
    main("kafka-python", kafka.__version__, produce, consume, attempt, subscribe, null_headers=False)
