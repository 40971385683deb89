"""Fetch requests of one partition that repeat one that the connection sent before, at any offset.

A consumer of one partition repeats every byte of its requests' bodies but the eight of the offset.
Equals `decode_fetch_request`, which reads what is not known, and says what is wrong with it.
`tests/protocol/known/test_fetch.py` compares both.
"""

from __future__ import annotations

import struct
from typing import Final

from echoless.protocol.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_request,
    usual_size,
)
from echoless.protocol.framing import Frame
from echoless.protocol.known.memory import KEY_BYTES_MAX, SeenBytes

TOPICS_AT_ONCE: Final = 2000
"""Topics of a request that is read in one step of an event loop: one costs as much as three partitions."""
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
"""Bytes behind the offset, by version, if nothing unusual follows: no topic that a session forgets, no rack, no tags."""
_BODY_BYTES_MAX: Final = KEY_BYTES_MAX + _OFFSET_SIZE
_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class; see `protocol/known/__init__.py`."""


def read_fetch_request(seen: SeenBytes, version: int, frame: Frame, position: int) -> FetchRequest:
    """The request whose body starts at `position`. Raises `DecodeError`, for many topics `ManyElementsError`."""
    end = len(frame)
    behind = end - _BEHIND_OFFSET[version]
    place = behind - _OFFSET_SIZE
    is_short = end - position <= _BODY_BYTES_MAX
    if is_short and type(frame) is bytes:
        known = seen.fetches.get((version, frame[position:place] + frame[behind:]))
        if known is not None:
            (offset,) = _read_offset(frame, place)
            first, topic, index, row_bytes_max, leader_epoch, last_epoch, rest = known
            row = (index, offset, row_bytes_max, leader_epoch, last_epoch)
            topics = [_new(FetchTopic, (topic, [_new(FetchPartition, row)]))]
            return _new(FetchRequest, (*first, topics, *rest))
    request = decode_fetch_request(version, frame, position, TOPICS_AT_ONCE)
    if is_short and len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        around = bytes(frame[position:place]) + bytes(frame[behind:])
        _note(seen, version, around, request)
    return request


def _note(seen: SeenBytes, version: int, around: bytes, request: FetchRequest) -> None:
    """Remembers a request of one partition, if nothing in it is unusual: then the offset is in its usual place.

    Any other body is longer or shorter than `usual_size`, so that `around` never equals what was remembered.
    """
    ((topic, ((index, _, row_bytes_max, leader_epoch, last_epoch),)),) = request.topics
    if request.session_epoch > 0:
        return  # every request of a session has another epoch
    if usual_size(version, topic) != len(around) + _OFFSET_SIZE:
        return
    row = (topic, index, row_bytes_max, leader_epoch, last_epoch)
    meaning = (request[:5], *row, request[6:])
    seen.note(seen.fetches, (version, around), len(around), meaning)
