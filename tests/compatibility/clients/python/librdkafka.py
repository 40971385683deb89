"""confluent-kafka (librdkafka) as a client program; see tests/compatibility/README.md."""

from __future__ import annotations

import sys
import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.compatibility.clients.python.membership import Membership
from tests.compatibility.clients.python.program import STORED, Case, Consume, Produce, main
from tests.compatibility.clients.python.records import Record
from tests.compatibility.clients.python.security import read_settings

_QUEUED_RECORDS_MAX = 50_000
_ATTEMPT_TIMEOUT_MS = 15_000
_POLL_S = 0.2
_RECORDS_AT_ONCE = 100
_GENERATION_AT = len(b"CGMDv2:")


def produce(run: Produce) -> None:
    """Writes the records; the delivery report of each is counted."""
    options = run.options
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "enable.idempotence": True,
            "compression.type": options.codec,
            "linger.ms": options.linger_ms,
            "request.timeout.ms": options.request_timeout_ms,
            "socket.timeout.ms": max(options.request_timeout_ms, 1_000),
            "delivery.timeout.ms": options.delivery_timeout_ms,
            "queue.buffering.max.messages": _QUEUED_RECORDS_MAX,
            "error_cb": lambda error: _note_fatal(run, producer, error),
            **read_settings(options.security),
        }
    )
    for wait, record in run.records():
        _poll_until(producer, time.monotonic() + wait)
        _send(run, producer, record)
    while producer.flush(1.0):
        if run.fatal:
            break


def _note_fatal(run: Produce, producer: Producer, error: confluent_kafka.KafkaError) -> None:
    if error.fatal():
        run.fatal = error.str()


def _poll_until(producer: Producer, deadline: float) -> None:
    producer.poll(0)
    while (left := deadline - time.monotonic()) > 0:
        producer.poll(left)


def _send(run: Produce, producer: Producer, record: Record) -> None:
    def on_delivery(error: confluent_kafka.KafkaError | None, message: Message) -> None:
        if error is not None:
            run.failed(error.name())
        else:
            offset = message.offset()
            run.acknowledged(
                record.partition, -1 if offset is None or offset < 0 else offset, record.number
            )

    while not run.fatal:
        try:
            producer.produce(
                run.options.topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                on_delivery=on_delivery,
                timestamp=record.timestamp,
                headers=record.headers,
            )
        except BufferError:
            producer.poll(0.1)
        except KafkaException as refused:
            run.fatal = str(refused)
        else:
            return


def consume(run: Consume) -> None:
    """Reads each partition from its first offset to its end."""
    options = run.options
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "unused: partitions are assigned",
            "enable.auto.commit": False,
            "check.crcs": True,
            **read_settings(options.security),
        }
    )
    assignment = []
    for partition in range(options.partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(options.topic, partition), 20)
        run.begin(partition, low, high)
        assignment.append(TopicPartition(options.topic, partition, low))
    consumer.assign(assignment)
    while not run.is_over:
        for message in consumer.consume(1000, timeout=0.2):
            _take(run, message)
    consumer.close()


def attempt(case: Case) -> str:
    """Waits for the first thing that librdkafka says: the record's fate, or an error of its own."""
    said: list[confluent_kafka.KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": case.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": _ATTEMPT_TIMEOUT_MS,
            "error_cb": said.append,
            "log_level": 0,
            **read_settings(case.security),
        }
    )
    producer.produce(case.topic, b"x", partition=0, on_delivery=lambda error, _: said.append(error))
    while not said:
        producer.poll(0.1)
    error = said[0]
    if error is None:
        return STORED
    if error.code() == confluent_kafka.KafkaError._FATAL:
        error = producer.fatal_error() or error
    return f"{error.name()}: {error.str()}"


def _take(run: Consume, message: Message) -> None:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    run.add(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )


def subscribe(run: Membership) -> None:
    """Reads as a member of the group, and commits after each poll."""
    options = run.options
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "group.protocol": options.protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 5_000,
    }
    if options.protocol == "classic":
        settings["partition.assignment.strategy"] = options.assignor
        settings["session.timeout.ms"] = options.session_timeout_ms
        settings["heartbeat.interval.ms"] = options.session_timeout_ms // 10
    consumer = Consumer(settings)

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        run.assigned(_generation(consumer), [one.partition for one in partitions])

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        run.revoked(one.partition for one in partitions)

    consumer.subscribe([options.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    while not run.is_over:
        offsets: dict[int, int] = {}
        for message in consumer.consume(_RECORDS_AT_ONCE, _POLL_S):
            if message.error() is None:
                partition, offset = _place(message)
                run.record(partition, offset, message.value())
                offsets[partition] = offset + 1
        if offsets:
            _commit(run, consumer, offsets)
    consumer.close()


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _generation(consumer: Consumer) -> int:
    """Reads it from what librdkafka writes of its membership; -1 in another format."""
    written = bytes(consumer.consumer_group_metadata())
    if not written.startswith(b"CGMDv2:"):
        return -1
    field = written[_GENERATION_AT : _GENERATION_AT + 4]
    return int.from_bytes(field, sys.byteorder, signed=True)


def _commit(run: Membership, consumer: Consumer, offsets: dict[int, int]) -> None:
    run.committing(offsets)
    wanted = [TopicPartition(run.options.topic, *pair) for pair in offsets.items()]
    try:
        answered = consumer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        run.failed(error)
    else:
        errors = [one.error for one in answered or [] if one.error is not None]
        if errors:
            run.failed(errors)
        else:
            run.committed(offsets)


if __name__ == "__main__":
    main("librdkafka", confluent_kafka.libversion()[0], produce, consume, attempt, subscribe)
