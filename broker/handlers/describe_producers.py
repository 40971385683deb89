"""DescribeProducers (61), version 0: who has written to a partition, and how far (KIP-664).

Every producer the replica knows is listed, even one that has expired but has not been swept yet
(`docs/protocol/producer-ids.md`); a follower answers from its own state. Each partition gets a row every
time it is named, up to a bound: a small request must not produce an answer of arbitrary size. A
partition may have a million producers, so a long answer is made of frozen states, in a thread. Coordinator epoch and
transaction start are those of the last marker and of the open transaction: Kafka's tools look for hanging transactions
by them. The whole window of each producer is available on the native port and at `/producers/<topic>/<partition>`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.metadata.topic_names import check_topic_name
from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import ROWS_PER_TURN, for_client, work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.protocol.acl import AclOperation
from echoless.protocol.describe_producers import (
    PartitionDescribed,
    TopicDescribed,
    encode_describe_producers_response,
)
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.services import Services

Key = tuple[str, int]

API = declared(__name__)

REPEATED_PRODUCERS_MAX: Final = 10_000
"""Producers that an answer may list again for partitions that the request repeats."""


PRODUCERS_AT_ONCE: Final = 500
"""Producers listed in one step, in about a millisecond; more are encoded in a thread."""


def handle(request: Request, services: Services) -> Outcome:
    """One row per topic and partition, in the order of the request; earlier produces of the connection are seen."""
    appends = request.peer.order.appends
    if appends.places:
        return _after_appends(request, services, appends.enter())
    return _described(request, services)


async def _after_appends(request: Request, services: Services, place: LanePlace) -> Answer:
    with place:
        await place.come()
        outcome = _described(request, services)
    return outcome if isinstance(outcome, bytes) else await outcome


def _described(request: Request, services: Services) -> bytes | Awaitable[bytes]:
    topics = request.body.topics
    asked = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
    if len(asked) > ROWS_PER_TURN or _count(asked, services) > PRODUCERS_AT_ONCE:
        return _later(request.peer.host, topics, asked, services)
    return _encode(topics, list(_rows(asked, services, is_frozen=False)))


async def _later(
    host: str, topics: Sequence[Any], asked: Sequence[Key], services: Services
) -> bytes:
    """Each row as it is in its turn; appends go on while they are encoded."""
    rows: list[PartitionDescribed] = []
    await work_in_turns(map(rows.append, _rows(asked, services, is_frozen=True)))
    return await for_client(host, partial(_encode, topics, rows))


def _count(asked: Iterable[Key], services: Services) -> int:
    held = (services.partitions.held.get(key) for key in asked)
    return sum(len(partition.log.producers) for partition in held if partition is not None)


def _rows(
    asked: Iterable[Key], services: Services, *, is_frozen: bool
) -> Iterator[PartitionDescribed]:
    seen: set[Key] = set()
    left = REPEATED_PRODUCERS_MAX
    for key in asked:
        if key in seen:
            left -= _count([key], services)
        is_refused = key in seen and left < 0
        seen.add(key)
        yield _refused_repeat(*key) if is_refused else _row(services, *key, is_frozen=is_frozen)


def _encode(topics: Iterable[Any], rows: Iterable[PartitionDescribed]) -> bytes:
    left = iter(rows)
    return encode_describe_producers_response(
        [
            TopicDescribed(topic.name, list(islice(left, len(topic.partition_indexes))))
            for topic in topics
        ]
    )


def find_replica(services: Services, topic: str, index: int) -> Partition:
    """The partition, regardless of its leader.

    Raises `KafkaError` INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR;
    NOT_LEADER_OR_FOLLOWER if only other brokers hold it.
    """
    check_topic_name(topic)
    known = services.registry.topics.get(topic)
    if (
        known is not None
        and index in known.assignment
        and (topic, index) not in services.partitions.held
    ):
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker holds no replica of {topic}-{index}"
        )
    return services.partitions.find(topic, index)


def _refused_repeat(topic: str, index: int) -> PartitionDescribed:
    return PartitionDescribed(
        index,
        ErrorCode.INVALID_REQUEST,
        f"{topic}-{index} is listed several times, and has too many producers for that",
    )


def _row(services: Services, topic: str, index: int, *, is_frozen: bool) -> PartitionDescribed:
    try:
        producers = find_replica(services, topic, index).log.producers
    except KafkaError as error:
        return PartitionDescribed(index, error.code, error.message or None)
    listed = producers.freeze() if is_frozen else producers
    return PartitionDescribed(
        index,
        producers=listed.items(),
        producer_count=len(listed),
        transactions=listed if producers.has_transactions else None,
    )


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition."""
    code, message = refusal.error.code, refusal.error.message
    topics = [
        TopicDescribed(key, [PartitionDescribed(index, code, message) for index in indexes])
        for key, indexes in refusal.rows
    ]
    return encode_describe_producers_response(topics)


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("topics", "partitions"),
    permit=permits.topics(AclOperation.READ),
)
