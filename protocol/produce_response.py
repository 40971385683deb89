"""The Produce response, read by hand: kio makes an object and a time of each row, which cost more than the batch.

The other side of `protocol/produce.py`, which has the layout by version. `tests/protocol/test_produce_response.py`
compares every version with kio. Topic ids (from version 13 on) are not read.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.headers import read_unsigned_varint, skip_tagged_fields
from echoless.protocol.request_fields import array_size, nullable_string, string

VERSION_MAX: Final = 12

_ROW_V3: Final = struct.Struct(">ihqq")
_ROW_V5: Final = struct.Struct(">ihqqq")
_INT32_SIZE: Final = 4
_LEADER: Final = struct.Struct(">ii")
_LEADER_TAG: Final = 0
_FLEXIBLE_FROM: Final = 9
_PLAIN: Final = b"\x01\x00\x00"
"""No record errors, no message, no tagged fields: the end of nearly every row."""


class ProducedRow(NamedTuple):
    """The outcome for one partition."""

    topic: str
    partition: int
    error_code: int
    """Kafka's number, whether `ErrorCode` has it or not."""
    base_offset: int
    log_append_time: int
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """`(leader id, leader epoch)`, if the broker names the leader."""


def read_produce_response(version: int, frame: Frame, position: int) -> list[ProducedRow]:
    """The rows of a response of version 3 to `VERSION_MAX` whose body starts at `position`.

    Raises `DecodeError`.
    """
    flexible = version >= _FLEXIBLE_FROM
    rows: list[ProducedRow] = []
    try:
        topics, position = array_size(frame, position, flexible=flexible)
        for _ in range(topics):
            topic, position = string(frame, position, flexible=flexible)
            partitions, position = array_size(frame, position, flexible=flexible)
            for _ in range(partitions):
                row, position = _read_row(version, frame, position, topic)
                rows.append(row)
            if flexible:
                position = skip_tagged_fields(frame, position)
    except (struct.error, IndexError) as error:
        raise DecodeError(
            f"the produce response ends after {len(frame)} bytes, in mid field"
        ) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"a text in the produce response is not UTF-8: {error}") from error
    return rows


def _read_row(version: int, frame: Frame, position: int, topic: str) -> tuple[ProducedRow, int]:
    if version < 5:
        fields = _ROW_V3.unpack_from(frame, position)
        return ProducedRow(topic, *fields), position + _ROW_V3.size
    partition, code, base_offset, append_time, _ = _ROW_V5.unpack_from(frame, position)
    position += _ROW_V5.size
    if version < 8:
        return ProducedRow(topic, partition, code, base_offset, append_time), position
    flexible = version >= _FLEXIBLE_FROM
    if flexible and frame[position : position + 3] == _PLAIN:
        return ProducedRow(topic, partition, code, base_offset, append_time), position + 3
    position = _skip_record_errors(frame, position, flexible=flexible)
    message, position = nullable_string(frame, position, flexible=flexible)
    leader = None
    if flexible:
        leader, position = _read_leader(frame, position)
    return ProducedRow(topic, partition, code, base_offset, append_time, message, leader), position


def _skip_record_errors(frame: Frame, position: int, *, flexible: bool) -> int:
    count, position = array_size(frame, position, flexible=flexible)
    for _ in range(count):
        _, position = nullable_string(frame, position + _INT32_SIZE, flexible=flexible)
        if flexible:
            position = skip_tagged_fields(frame, position)
    return position


def _read_leader(frame: Frame, position: int) -> tuple[tuple[int, int] | None, int]:
    """The tagged field with the current leader, if there is one, and the position after all of them."""
    end = skip_tagged_fields(frame, position)
    count, position = read_unsigned_varint(frame, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        if tag == _LEADER_TAG:
            return _LEADER.unpack_from(frame, position), end
        position += size
    return None, end
