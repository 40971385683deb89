"""The topics and partitions that a request names, and the request without some of them.

Works on any decoded request, whether read by hand or by kio, whose classes name the same things differently
in each API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from echoless.broker.network.denial import IsRefused
from echoless.protocol.fetch_request import FetchRequest
from echoless.protocol.produce_request import ProduceRequest

_TOPIC_FIELDS: Final = ("topics", "topic_names", "topic_partitions")
_TOPIC_KEYS: Final = ("name", "topic", "topic_id")


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
        yield topic_key(topic), indexes, [None] * len(indexes)


def listed_topics_field(body: Any) -> str | None:
    """The field that names the topics; None if the request names none, or all of them."""
    return next((name for name in _TOPIC_FIELDS if getattr(body, name, None)), None)


def _listed_topics(body: Any) -> Sequence[Any]:
    for name in _TOPIC_FIELDS:
        found = getattr(body, name, None)
        if found is not None:
            return tuple(found)
    groups = getattr(body, "groups", ())
    return [topic for group in groups for topic in getattr(group, "topics", None) or ()]


def _listed_partitions(topic: Any) -> Sequence[Any]:
    for name in ("partitions", "partition_indexes"):
        found = getattr(topic, name, None)
        if found is not None:
            return tuple(found)
    return ()


def names_many(body: Any, count_max: int) -> bool:
    """Whether the request names more than `count_max` topics, partitions, resources or groups.

    Not one that produces: its answer is packed by hand, and may be none at all.
    """
    if isinstance(body, ProduceRequest):
        return False
    left = count_max
    for name in ("resources", "coordinator_keys", "groups", "groups_names", "group_ids"):
        left -= len(getattr(body, name, None) or ())
    for topic in _listed_topics(body):
        left -= 1 if isinstance(topic, str) else len(_listed_partitions(topic)) or 1
        if left < 0:
            break
    return left < 0


def topic_key(topic: Any) -> Any:
    """The name or the id by which a row of a request or a response names its topic."""
    if isinstance(topic, str):
        return topic
    names = [name for name in _TOPIC_KEYS if hasattr(topic, name)]
    if not names:
        # Under no name at all it would pass every refusal.
        raise TypeError(f"a {type(topic).__name__} has none of the fields {_TOPIC_KEYS}")
    return next((key for name in names if (key := getattr(topic, name)) is not None), "")


def _index(partition: Any) -> int:
    if isinstance(partition, int):
        return partition
    found = getattr(partition, "partition_index", None)
    return int(partition.partition if found is None else found)


def without(body: Any, is_refused: IsRefused) -> Any:
    """The request without the refused parts."""
    field = listed_topics_field(body)
    if field is None:  # all of them: refused rows take the place of those that are processed
        return body
    kept = filter(None, (_without(topic, is_refused) for topic in getattr(body, field)))
    return _replaced(body, **{field: tuple(kept)})


def answered_at_once(body: Any) -> Any:
    """The request; if it is one that waits for data, it no longer waits."""
    return body._replace(max_wait_ms=0) if isinstance(body, FetchRequest) else body


def _without(topic: Any, is_refused: IsRefused) -> Any:
    key = topic_key(topic)
    for name in ("partitions", "partition_indexes"):
        listed = getattr(topic, name, None)
        if listed is not None:
            kept = tuple(one for one in listed if not is_refused(key, _index(one)))
            return _replaced(topic, **{name: kept}) if kept else None
    return None if is_refused(key, -1) else topic


def _replaced(entity: Any, **changes: Any) -> Any:
    if isinstance(entity, tuple):  # read by hand
        return entity._replace(**changes)  # type: ignore[attr-defined]
    return replace(entity, **changes)
