"""Fetch requests of one partition that repeat one read before, but for the offset: known at a glance.

A consumer of one partition repeats every byte of its requests' bodies but the eight of the offset. Those bytes are
remembered with what they mean. A body with the same bytes around any offset means the same, no matter which client
sends it: nothing here ever becomes wrong. Everything else is left to `decode_fetch_request`, which says what is wrong.

`tests/protocol/test_known_fetch.py` compares both ways.
"""

from __future__ import annotations

import struct
import uuid
from typing import Final

from echoless.protocol.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_request,
    usual_size,
)
from echoless.protocol.framing import Frame

_OFFSET_SIZE: Final = 8
_read_offset: Final = struct.Struct(">q").unpack_from
_BEHIND_OFFSET: Final = {
    4: 4,
    5: 12,
    6: 12,
    **dict.fromkeys(range(7, 11), 16),
    11: 18,
    **dict.fromkeys(range(12, 18), 21),
}
"""How many bytes follow the offset, by version, if nothing unusual does: no topic that a session forgets, no rack, no tags."""
_BODY_BYTES_MAX: Final = 400
_BODIES_MAX: Final = 1000
_Known = tuple[tuple[int, int, int, int, int], str | uuid.UUID, int, int, int, int, int]
"""The fields of a request before the topics, the topic, those of its only row but for the offset, and the replica id."""
_BODIES: Final[dict[tuple[int, bytes], _Known]] = {}
"""Requests that were read before, by the version and the bytes around the offset. All are forgotten when they are too many."""
_SIZES: Final[set[int]] = set()
"""The sizes that those bodies have: others need not be looked for."""
_new: Final = tuple.__new__
"""Makes a named tuple of its fields: a call of its class takes three times as long."""


def read_fetch_request(version: int, frame: Frame, position: int) -> FetchRequest:
    """The request whose body starts at `position`. Raises `DecodeError`."""
    end = len(frame)
    if end - position in _SIZES and type(frame) is bytes:
        behind = end - _BEHIND_OFFSET[version]
        place = behind - _OFFSET_SIZE
        known = _BODIES.get((version, frame[position:place] + frame[behind:]))
        if known is not None:
            (offset,) = _read_offset(frame, place)
            first, topic, index, row_bytes_max, leader_epoch, last_epoch, replica_id = known
            row = (index, offset, row_bytes_max, leader_epoch, last_epoch)
            topics = [_new(FetchTopic, (topic, [_new(FetchPartition, row)]))]
            return _new(FetchRequest, (*first, topics, replica_id))
    request = decode_fetch_request(version, frame, position)
    topics = request.topics
    if len(topics) == 1 and len(topics[0][1]) == 1 and end - position <= _BODY_BYTES_MAX:
        _note(version, bytes(frame[position:]), request)
    return request


def _note(version: int, body: bytes, request: FetchRequest) -> None:
    """Remembers a request of one partition, if nothing in it is unusual: then the offset is in its usual place."""
    size = len(body)
    ((topic, ((index, _, row_bytes_max, leader_epoch, last_epoch),)),) = request.topics
    if usual_size(version, topic) != size:
        return
    if len(_BODIES) >= _BODIES_MAX:
        _BODIES.clear()
        _SIZES.clear()
    behind = size - _BEHIND_OFFSET[version]
    row = (topic, index, row_bytes_max, leader_epoch, last_epoch)
    _SIZES.add(size)
    around = body[: behind - _OFFSET_SIZE] + body[behind:]
    _BODIES[version, around] = (request[:5], *row, request.replica_id)
