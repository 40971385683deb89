"""The final content of a target: the number of every record, read with a plain consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.spark_proofs.numbered_source import number_of

_ANSWER_TIMEOUT_S: Final = 60.0
_AT_ONCE: Final = 10_000


def read_numbers(client: Mapping[str, str], topic: str, partitions: int) -> list[np.ndarray]:
    """The numbers by partition, in offset order, from the first record to the current last one.

    `client`: the brokers' addresses and a log-in, by librdkafka's names.
    """
    consumer = Consumer(
        {**client, "group.id": "judge", "enable.auto.commit": False, "log_level": 2}
    )
    try:
        return [_read_partition(consumer, topic, index) for index in range(partitions)]
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, topic: str, partition: int) -> np.ndarray:
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    begin, end = consumer.get_watermark_offsets(place, _ANSWER_TIMEOUT_S)
    assert begin == 0, f"{topic}-{partition} begins at {begin}"
    numbers = np.empty(end, np.int64)
    consumer.assign([place])
    expected = 0
    while expected < end:
        # It waits for as many records as it is asked for.
        messages = consumer.consume(min(_AT_ONCE, end - expected), _ANSWER_TIMEOUT_S)
        assert messages, f"{topic}-{partition}: nothing more than {expected} of {end} records"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.offset() == expected, f"{message.offset()} instead of {expected}"
            numbers[expected] = number_of(message.value() or b"")
            expected += 1
    consumer.unassign()
    return numbers
