"""Order in which Spark's Kafka source numbers the tasks of a batch: when it is first planned, and after a restart.

The order is that of a Scala map of topic partitions. With up to four entries it keeps the order of insertion: first
that of a mutable hash map of the partitions, after a restart that of the checkpoint's JSON, by topic and partition. With
more it is a hash trie, whose order depends on its content alone.
"""

from __future__ import annotations

from itertools import groupby

TopicPartition = tuple[str, int]
KEEPS_INSERTION_ORDER_UP_TO = 4


def first_order(partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Returns the order when the batch is first planned."""
    return sorted(sorted(partitions), key=lambda one: _bucket(_hash(one), len(partitions)))


def order_after_restart(partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Returns the order when it is planned from the checkpoint."""
    if len(partitions) > KEEPS_INSERTION_ORDER_UP_TO:
        return first_order(partitions)
    by_topic = {topic: list(own) for topic, own in groupby(sorted(partitions), lambda one: one[0])}
    topics = sorted(by_topic, key=lambda topic: _bucket(_text_hash(topic), len(by_topic)))
    return [one for topic in topics for one in by_topic[topic]]


def _hash(one: TopicPartition) -> int:
    """Java's hash of a topic partition."""
    return (31 * (31 + one[1]) + _text_hash(one[0])) & 0xFFFFFFFF


def _text_hash(text: str) -> int:
    found = 0
    for character in text:
        found = (31 * found + ord(character)) & 0xFFFFFFFF
    return found


def _bucket(number: int, count: int) -> tuple[int, int]:
    """Returns the place in a mutable hash map, which is walked by bucket."""
    improved = number ^ (number >> 16)
    size = 16
    while size * 0.75 < count:
        size *= 2
    return improved & (size - 1), improved
