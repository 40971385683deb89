"""Fetch 11 of one partition by hand, since a reader sends it all the time: kio builds one request, of which the position is replaced."""

from __future__ import annotations

import datetime
import functools
import struct
from typing import Final, NamedTuple

from tests.simulation.observations import Spot
from tests.support.raw_client import encode_body, message, nested

FETCH: Final = 1
VERSION: Final = 11
_WAIT: Final = datetime.timedelta(milliseconds=500)
_BYTES_MAX: Final = 2000
"""So few that many responses end in the middle of a transaction."""
_OFFSET: Final = struct.Struct(">q")
_MARK: Final = 0x0123_4567_89AB_CDEF
_HEAD: Final = struct.Struct(">ihiih")
_ROW: Final = struct.Struct(">iihqqqi")
_ABORTED: Final = struct.Struct(">qq")
_TAIL: Final = struct.Struct(">ii")


class FetchAnswer(NamedTuple):
    """The row of the partition."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]]
    """Producer ids and first offsets."""
    records: bytes


def fetch_request(spot: Spot, position: int, *, is_committed: bool) -> bytes:
    """The body of a request that reads from `position` on."""
    before, after = _around_position(spot, is_committed=is_committed)
    return before + _OFFSET.pack(position) + after


@functools.cache
def _around_position(spot: Spot, *, is_committed: bool) -> tuple[bytes, bytes]:
    row = nested("fetch", VERSION, "FetchPartition")(
        partition=spot.partition, fetch_offset=_MARK, partition_max_bytes=_BYTES_MAX
    )
    topic = nested("fetch", VERSION, "FetchTopic")(topic=spot.topic, partitions=(row,))
    request = message("fetch", VERSION, "Request")(
        max_wait=_WAIT,
        min_bytes=1,
        isolation_level=int(is_committed),
        topics=(topic,),
        forgotten_topics_data=(),
    )
    before, mark, after = encode_body(request)[0].partition(_OFFSET.pack(_MARK))
    assert mark, "the position was not found"
    return before, after


def read_fetch_answer(data: bytes) -> FetchAnswer:
    """The answer, from the throttle time on. It has one row, of the partition that was asked for."""
    *_, topics, name_length = _HEAD.unpack_from(data)
    position = _HEAD.size + name_length
    rows, _, code, high_watermark, stable, _, aborted_count = _ROW.unpack_from(data, position)
    assert topics == rows == 1
    position += _ROW.size
    aborted = [
        _ABORTED.unpack_from(data, position + index * _ABORTED.size)
        for index in range(aborted_count)
    ]
    position += len(aborted) * _ABORTED.size
    _, length = _TAIL.unpack_from(data, position)
    position += _TAIL.size
    records = data[position : position + max(length, 0)]
    assert position + max(length, 0) == len(data), "bytes are left over"
    return FetchAnswer(code, high_watermark, stable, aborted, records)
