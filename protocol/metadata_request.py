"""The Metadata request, read by hand: every client begins with it, and kio would cost the first one 15 ms.

Layout by version: v1 has null for all topics; v4 adds whether topics may be created; v8 whether to answer with
the operations that are authorised (on the cluster up to v10); v9 is flexible; v10 adds topic ids, and a name may
be null. `tests/protocol/test_first_requests.py` compares every version with kio. Pure.
"""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

from echoless.protocol.framing import Frame
from echoless.protocol.headers import skip_tagged_fields
from echoless.protocol.request_fields import (
    ELEMENTS_MAX,
    add_elements,
    array_size,
    boolean,
    field_bytes,
    nullable_string,
    refusing_cut_frames,
    string,
)

_CREATION_FROM, _OPERATIONS_FROM, _FLEXIBLE_FROM, _TOPIC_IDS_FROM = 4, 8, 9, 10
_CLUSTER_OPERATIONS: Final = range(8, 11)
_UUID_SIZE: Final = 16
_NO_ID: Final = bytes(_UUID_SIZE)


class WantedTopic(NamedTuple):
    """A requested topic: by name, or by id if the name is None."""

    name: str | None
    topic_id: uuid.UUID | None = None


class MetadataRequest(NamedTuple):
    topics: tuple[WantedTopic, ...] | None
    """None: all."""
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


def _decode(version: int, frame: Frame, position: int) -> MetadataRequest:
    topics, position = _topics(version, frame, position)
    may_create, of_cluster, of_topics = True, False, False
    if version >= _CREATION_FROM:
        may_create, position = boolean(frame, position)
    if version in _CLUSTER_OPERATIONS:
        of_cluster, position = boolean(frame, position)
    if version >= _OPERATIONS_FROM:
        of_topics, position = boolean(frame, position)
    if version >= _FLEXIBLE_FROM:
        skip_tagged_fields(frame, position)
    return MetadataRequest(topics, may_create, of_cluster, of_topics)


decode_metadata_request: Final = refusing_cut_frames("metadata", _decode)


def _topics(
    version: int, frame: Frame, position: int
) -> tuple[tuple[WantedTopic, ...] | None, int]:
    flexible = version >= _FLEXIBLE_FROM
    count, position = array_size(frame, position, flexible=flexible)
    if count == -1 and version >= 1:
        return None, position
    add_elements(frame, position, count, 0, ELEMENTS_MAX)
    topics = []
    for _ in range(count):
        topic, position = _topic(version, frame, position)
        if flexible:
            position = skip_tagged_fields(frame, position)
        topics.append(topic)
    return tuple(topics), position


def _topic(version: int, frame: Frame, position: int) -> tuple[WantedTopic, int]:
    if version < _TOPIC_IDS_FROM:
        name, position = string(frame, position, flexible=version >= _FLEXIBLE_FROM)
        return WantedTopic(name), position
    packed = bytes(field_bytes(frame, position, _UUID_SIZE))
    nullable, position = nullable_string(frame, position + _UUID_SIZE, flexible=True)
    return WantedTopic(nullable, None if packed == _NO_ID else uuid.UUID(bytes=packed)), position
