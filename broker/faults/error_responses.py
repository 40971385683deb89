"""Error responses of each API that a rule can answer with an error, whole or for some partitions.

`BUILDERS` makes the response of what is refused, `without` the request of what is not, and `merge`
puts the answers to both together. Whole means: an API whose response carries one error for all.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.handlers import metadata
from broker.request import Answer, Request
from protocol.describe_producers import (
    PartitionDescribed,
    TopicDescribed,
    encode_describe_producers_response,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.fetch import PartitionFetched, TopicFetched, encode_fetch_response
from protocol.produce import PartitionProduced, TopicProduced, encode_produce_response
from protocol.produce_request import ProduceRequest
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.broker import Broker

IsRefused = Callable[[Any, int], bool]
"""Of a topic as the request names it, and a partition."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Refusal:
    """What is to be answered with an error."""

    request: Request
    error: KafkaError
    is_refused: IsRefused
    topics: Sequence[str]
    """The names of the topics that are concerned."""

    @property
    def rows(self) -> Iterator[tuple[Any, list[int]]]:
        """Each topic as the request names it, and its partitions, as far as they are refused."""
        for key, indexes, _ in topics_of(self.request.body):
            refused = [index for index in indexes if self.is_refused(key, index)]
            if refused or not indexes:
                yield key, refused


# --- the topics of a request ---


def topics_of(body: Any) -> Iterator[tuple[Any, list[int], list[Any]]]:
    """`(topic, partitions, their batches)` for each topic that the request names, by name or id."""
    if isinstance(body, ProduceRequest):
        for topic, partitions in body.topics:
            yield topic, [one.partition for one in partitions], [one.records for one in partitions]
        return
    for topic in _listed_topics(body):
        if isinstance(topic, str):
            yield topic, [], []
            continue
        indexes = [_index(one) for one in _listed_partitions(topic)]
        yield _key(topic), indexes, [None] * len(indexes)


def _listed_topics(body: Any) -> Sequence[Any]:
    for name in ("topics", "topic_names", "topic_partitions"):
        found = getattr(body, name, None)
        if found is not None:
            return tuple(found)
    return [topic for group in getattr(body, "groups", ()) for topic in group.topics or ()]


def _listed_partitions(topic: Any) -> Sequence[Any]:
    for name in ("partitions", "partition_indexes"):
        found = getattr(topic, name, None)
        if found is not None:
            return tuple(found)
    return ()


def _key(topic: Any) -> Any:
    for name in ("name", "topic", "topic_id"):
        found = getattr(topic, name, None)
        if found is not None:
            return found
    return ""


def _index(partition: Any) -> int:
    if isinstance(partition, int):
        return partition
    found = getattr(partition, "partition_index", None)
    return int(partition.partition if found is None else found)


def without(body: Any, is_refused: IsRefused) -> Any:
    """The request without what is refused. What waits for data does not wait for the rest of it."""
    if isinstance(body, ProduceRequest):
        topics = [
            topic._replace(
                partitions=[
                    one for one in topic.partitions if not is_refused(topic.topic, one.partition)
                ]
            )
            for topic in body.topics
        ]
        return body._replace(topics=[topic for topic in topics if topic.partitions])
    kept = filter(None, (_without(topic, is_refused) for topic in body.topics or ()))
    changes: dict[str, Any] = {"topics": tuple(kept)}
    if hasattr(body, "max_wait"):
        changes["max_wait"] = datetime.timedelta(0)
    return dataclasses.replace(body, **changes)


def _without(topic: Any, is_refused: IsRefused) -> Any:
    key = _key(topic)
    for name in ("partitions", "partition_indexes"):
        listed = getattr(topic, name, None)
        if listed is not None:
            kept = tuple(one for one in listed if not is_refused(key, _index(one)))
            return dataclasses.replace(topic, **{name: kept}) if kept else None
    return None if is_refused(key, -1) else topic


# --- the response of what is refused ---


def _produce(refusal: Refusal, _broker: Broker) -> Answer:
    code, message = refusal.error.code, refusal.error.message
    topics = [
        TopicProduced(
            key, [PartitionProduced(index, code, error_message=message) for index in indexes]
        )
        for key, indexes in refusal.rows
    ]
    return encode_produce_response(refusal.request.version, topics)


def _fetch(refusal: Refusal, _broker: Broker) -> Answer:
    topics = [
        TopicFetched(key, [PartitionFetched(index, refusal.error.code) for index in indexes])
        for key, indexes in refusal.rows
    ]
    return encode_fetch_response(refusal.request.version, ErrorCode.NONE, topics)


def _describe_producers(refusal: Refusal, _broker: Broker) -> Answer:
    code, message = refusal.error.code, refusal.error.message
    topics = [
        TopicDescribed(key, [PartitionDescribed(index, code, message) for index in indexes])
        for key, indexes in refusal.rows
    ]
    return encode_describe_producers_response(topics)


def _list_offsets(refusal: Refusal, _broker: Broker) -> Answer:
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


def _metadata(refusal: Refusal, broker: Broker) -> Answer:
    """With the brokers, so that clients find their way."""
    listener = refusal.request.peer.listener
    answer = metadata.describe(broker, [], may_create=False, listener=listener)
    assert isinstance(answer, Mapping)
    topics = [
        {"error_code": refusal.error.code, "name": name, "topic_id": None, "is_internal": False}
        for name in refusal.topics
    ]
    return {**answer, "topics": [{**topic, "partitions": ()} for topic in topics]}


def _create_topics(refusal: Refusal, _broker: Broker) -> Answer:
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


def _init_producer_id(refusal: Refusal, _broker: Broker) -> Answer:
    code = refusal.error.code
    return {"throttle_time": 0, "error_code": code, "producer_id": -1, "producer_epoch": -1}


def _find_coordinator(refusal: Refusal, _broker: Broker) -> Answer:
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


def _offset_fetch(refusal: Refusal, _broker: Broker) -> Answer:
    """One error for each group: in version 1, which has none, one for each partition."""
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


BUILDERS: Final[Mapping[str, Callable[[Refusal, Broker], Answer]]] = {
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


# --- both answers together ---

_TOPICS: Final = {
    "produce": "responses",
    "fetch": "responses",
    "list_offsets": "topics",
    "describe_producers": "topics",
    "metadata": "topics",
    "create_topics": "topics",
}
"""The field with one row per topic. What is not here is refused as a whole."""
_PARTITIONS: Final = {
    "produce": "partition_responses",
    "fetch": "partitions",
    "list_offsets": "partitions",
    "describe_producers": "partitions",
}


def merge(api: Api, version: int, answered: bytes, refused: bytes) -> bytes:
    """The answer with the rows of the refusal: in place of its own, or besides them."""
    if api.name not in _TOPICS:
        return refused
    read, write = _codec(api.name, version)
    answer, refusal = read(answered), read(refused)
    field = _TOPICS[api.name]
    rows = {_key(row): row for row in getattr(answer, field)}
    for row in getattr(refusal, field):
        key = _key(row)
        rows[key] = _merge_topic(api.name, rows[key], row) if key in rows else row
    return write(dataclasses.replace(answer, **{field: tuple(rows.values())}))


def _merge_topic(api: str, answered: Any, refused: Any) -> Any:
    field = _PARTITIONS.get(api)
    if field is None:
        return refused
    rows = {_row_index(row): row for row in getattr(answered, field)}
    rows |= {_row_index(row): row for row in getattr(refused, field)}
    return dataclasses.replace(answered, **{field: tuple(rows.values())})


def _row_index(row: Any) -> int:
    found = getattr(row, "index", None)
    return int(row.partition_index if found is None else found)


@functools.cache
def _codec(name: str, version: int) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    """Reads and writes a response body, by kio."""
    from kio.serial import entity_reader, entity_writer

    module = importlib.import_module(f"kio.schema.{name}.v{version}.response")
    cls = getattr(module, "".join(map(str.capitalize, name.split("_"))) + "Response")
    reader, writer = entity_reader(cls), entity_writer(cls)

    def write(entity: Any) -> bytes:
        out = io.BytesIO()
        writer(out, entity)
        return out.getvalue()

    return lambda body: reader(body, 0)[0], write
