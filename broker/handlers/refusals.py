"""Error responses of each API that a rule can answer with an error, for the refused parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.handlers.request_topics import IsRefused, topics_of
from broker.handlers import metadata
from broker.network.request import Answer, Request
from protocol.describe_producers import (
    PartitionDescribed,
    TopicDescribed,
    encode_describe_producers_response,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.fetch import PartitionFetched, TopicFetched, encode_fetch_response
from protocol.produce import PartitionProduced, TopicProduced, encode_produce_response

if TYPE_CHECKING:
    from broker.services import Services


@dataclass(slots=True, frozen=True, kw_only=True)
class Refusal:
    """The parts of a request to answer with an error."""

    request: Request
    error: KafkaError
    is_refused: IsRefused
    topics: Sequence[str]
    """The names of the topics concerned."""

    @property
    def rows(self) -> Iterator[tuple[Any, list[int]]]:
        """Each topic as the request names it, with its refused partitions."""
        for key, indexes, _ in topics_of(self.request.body):
            refused = [index for index in indexes if self.is_refused(key, index)]
            if refused or not indexes:
                yield key, refused


def _produce(refusal: Refusal, _services: Services) -> Answer:
    code, message = refusal.error.code, refusal.error.message
    topics = [
        TopicProduced(
            key, [PartitionProduced(index, code, error_message=message) for index in indexes]
        )
        for key, indexes in refusal.rows
    ]
    return encode_produce_response(refusal.request.version, topics)


def _fetch(refusal: Refusal, _services: Services) -> Answer:
    topics = [
        TopicFetched(key, [PartitionFetched(index, refusal.error.code) for index in indexes])
        for key, indexes in refusal.rows
    ]
    return encode_fetch_response(refusal.request.version, ErrorCode.NONE, topics)


def _describe_producers(refusal: Refusal, _services: Services) -> Answer:
    code, message = refusal.error.code, refusal.error.message
    topics = [
        TopicDescribed(key, [PartitionDescribed(index, code, message) for index in indexes])
        for key, indexes in refusal.rows
    ]
    return encode_describe_producers_response(topics)


def _list_offsets(refusal: Refusal, _services: Services) -> Answer:
    topics = [
        {
            "name": key,
            "partitions": [
                {"partition_index": index, "error_code": refusal.error.code} for index in indexes
            ],
        }
        for key, indexes in refusal.rows
    ]
    return {"throttle_time": 0, "topics": topics}


def _metadata(refusal: Refusal, services: Services) -> Answer:
    """Includes the brokers, so that clients can still find them."""
    listener = refusal.request.peer.listener
    answer = metadata.describe(services, [], may_create=False, listener=listener)
    assert isinstance(answer, Mapping)
    topics = [
        {"error_code": refusal.error.code, "name": name, "topic_id": None, "is_internal": False}
        for name in refusal.topics
    ]
    return {**answer, "topics": [{**topic, "partitions": ()} for topic in topics]}


def _create_topics(refusal: Refusal, _services: Services) -> Answer:
    error = refusal.error
    topics = [
        {
            "name": name,
            "topic_id": None,
            "error_code": error.code,
            "error_message": error.message,
            "configs": (),
        }
        for name in refusal.topics
    ]
    return {"throttle_time": 0, "topics": topics}


def _init_producer_id(refusal: Refusal, _services: Services) -> Answer:
    code = refusal.error.code
    return {"throttle_time": 0, "error_code": code, "producer_id": -1, "producer_epoch": -1}


def _find_coordinator(refusal: Refusal, _services: Services) -> Answer:
    error = refusal.error
    row = {
        "error_code": error.code,
        "error_message": error.message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    keys = getattr(refusal.request.body, "coordinator_keys", ())
    return {"throttle_time": 0, "coordinators": [{"key": key, **row} for key in keys], **row}


def _offset_fetch(refusal: Refusal, _services: Services) -> Answer:
    """One error per group; in version 1, which has no such error, one per partition."""
    code = refusal.error.code
    groups = [
        {"group_id": group.group_id, "error_code": code, "topics": ()}
        for group in getattr(refusal.request.body, "groups", ())
    ]
    row = {"committed_offset": -1, "metadata": "", "error_code": code}
    topics = [
        {"name": key, "partitions": [{"partition_index": index, **row} for index in indexes]}
        for key, indexes in refusal.rows
    ]
    return {"throttle_time": 0, "error_code": code, "topics": topics, "groups": groups}


BUILDERS: Final[Mapping[str, Callable[[Refusal, Services], Answer]]] = {
    "produce": _produce,
    "fetch": _fetch,
    "metadata": _metadata,
    "init_producer_id": _init_producer_id,
    "list_offsets": _list_offsets,
    "find_coordinator": _find_coordinator,
    "offset_fetch": _offset_fetch,
    "create_topics": _create_topics,
    "describe_producers": _describe_producers,
}
