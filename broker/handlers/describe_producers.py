"""DescribeProducers (61), version 0: who has written to a partition, and how far (KIP-664).

Every producer the replica knows is listed, even one that has expired but has not been swept yet
(`dedup-spec.md` 6); a follower answers from its own state. Each partition gets a row every time it is
named, up to a bound: a small request must not produce an answer of arbitrary size. The last timestamp
is that of the newest batch; there are no transactions, so coordinator epoch and transaction start are
-1. The whole window of each producer is available on the native port and at
`/producers/<topic>/<partition>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.metadata.topic_names import check_topic_name
from broker.network.request import Answer, Request
from broker.partitions.partition import Partition
from protocol.describe_producers import (
    PartitionDescribed,
    TopicDescribed,
    encode_describe_producers_response,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=61, name="describe_producers", version_min=0, version_max=0, flexible_from=0)

REPEATED_PRODUCERS_MAX: Final = 10_000
"""How many producers an answer may list again for partitions that the request repeats."""


def handle(request: Request, broker: Broker) -> Answer:
    """One row per topic and partition, in the order of the request."""
    seen: set[tuple[str, int]] = set()
    left = REPEATED_PRODUCERS_MAX
    topics = []
    for topic in request.body.topics:
        rows = []
        for index in topic.partition_indexes:
            row = _row(broker, topic.name, index)
            if (topic.name, index) in seen:
                left -= row.producer_count
                row = row if left >= 0 else _refused_repeat(topic.name, index)
            seen.add((topic.name, index))
            rows.append(row)
        topics.append(TopicDescribed(topic.name, rows))
    return encode_describe_producers_response(topics)


def find_replica(broker: Broker, topic: str, index: int) -> Partition:
    """The partition, regardless of its leader.

    Raises `KafkaError` INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR;
    NOT_LEADER_OR_FOLLOWER if only other brokers hold it.
    """
    check_topic_name(topic)
    known = broker.registry.topics.get(topic)
    if known is not None and index in known.assignment and (topic, index) not in broker.partitions:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker holds no replica of {topic}-{index}"
        )
    return broker.find_partition(topic, index)


def _refused_repeat(topic: str, index: int) -> PartitionDescribed:
    return PartitionDescribed(
        index,
        ErrorCode.INVALID_REQUEST,
        f"{topic}-{index} is listed several times, and has too many producers for that",
    )


def _row(broker: Broker, topic: str, index: int) -> PartitionDescribed:
    try:
        producers = find_replica(broker, topic, index).log.producers
    except KafkaError as error:
        return PartitionDescribed(index, error.code, error.message or None)
    return PartitionDescribed(index, producers=producers.items(), producer_count=len(producers))
