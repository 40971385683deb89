"""The Fetch response, packed by hand, so that record bytes go out as they came from the log.

The encoder returns large answers as a list of buffers: small packed pieces with the records between them,
for one gathering write. Versions 4 to 17: v5 adds log_start_offset, v7 the error code and session id, v11
preferred_read_replica, v12 is flexible (with the tagged diverging_epoch), v13 names topics by id, v16 has the tagged
current_leader (sent only with NOT_LEADER_OR_FOLLOWER) and node_endpoints. Rows without aborted
transactions, nearly all, are packed in one call each.
`tests/protocol/test_fetch.py` decodes every version with kio.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.fetch_request import NO_SESSION
from echoless.protocol.headers import NO_TAGS, write_unsigned_varint
from echoless.protocol.node_endpoints import LeaderHint, encode_endpoints, encode_leader

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEAD_V4: Final = struct.Struct(">4xi")
"""Throttle time, count of topics."""
_HEAD_V7: Final = struct.Struct(">4xhii")
"""Throttle time, error, session, count of topics."""
_HEAD_V12: Final = struct.Struct(">4xhi")
_PARTITION_V4: Final = struct.Struct(">ihqqii")
"""Index, error, two offsets, the count of aborted transactions (none or null), bytes of records."""
_PARTITION_V5: Final = struct.Struct(">ihqqqii")
_PARTITION_V11: Final = struct.Struct(">ihqqqiii")
_PARTITION_V12: Final = struct.Struct(">ihqqqbi")
"""Index, error, three offsets, aborted transactions (none or null), the preferred replica."""
_PARTITION_BEGINNING: Final = struct.Struct(">ihqq")
"""Index, error, two offsets; the log start, aborted transactions and the rest follow."""
_INT64: Final = struct.Struct(">q")
_ABORTED: Final = struct.Struct(">qq")
"""Producer id, first offset."""
_EPOCH_END: Final = struct.Struct(">iq")
_EMPTY: Final = 1
"""A compact array without elements; 0 is null, and without compactness 0 and -1."""
_NO_PREFERRED_REPLICA: Final = -1
_FLEXIBLE_FROM: Final = 12
_LEADERS_FROM: Final = 16
_LEADER_TAG: Final = 1
_TOPIC_IDS_FROM: Final = 13

_JOINED_BYTES_MAX: Final = 16 * 1024
"""Up to this many bytes of records, a copy costs less than handling several buffers."""

_ALONE_FROM_BYTES: Final = 1024
"""Records of so many bytes stay a buffer of their own in a large answer of many rows."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""The isolation level that reads up to the last stable offset; any other reads up to the high watermark."""


class PartitionFetched(NamedTuple):
    """The outcome for one partition of a fetch request. `records` are whole batches."""

    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: bytes = b""
    diverging_epoch: tuple[int, int] | None = None
    """`(epoch, its end offset)` where the fetcher's log diverged from ours (v12 on)."""
    aborted: Sequence[tuple[int, int]] | None = None
    """Producer id and first offset of aborted transactions that may have batches among `records`, by their markers.

    None for readers of all records, and beside an error.
    """
    leader: LeaderHint | None = None
    """The leader to ask instead, sent from v16 on with NOT_LEADER_OR_FOLLOWER."""


PackedTopic = tuple[str | uuid.UUID, int, list[bytes]]
"""A topic's id or name, the number of its rows, and their bytes."""
TopicFetched = tuple[str | uuid.UUID, Sequence[PartitionFetched]]
"""A topic's id (from v13 on) or name, with the outcomes for its partitions."""


def encode_fetch_response(
    version: int,
    error_code: ErrorCode,
    topics: Sequence[TopicFetched],
    session_id: int = NO_SESSION,
) -> bytes | list[bytes]:
    """The body (without the response header) for versions 4 to 17; in buffers if it is large."""
    encode = _flexible if version >= _FLEXIBLE_FROM else _fixed
    out, size = encode(version, error_code, topics, session_id)
    return out if size > _JOINED_BYTES_MAX else b"".join(out)


def pack_row(version: int, row: PartitionFetched) -> tuple[bytes, ...]:
    """The bytes of one row of an answer: before its records, the records, and after them; without records one piece."""
    index, error, high_watermark, stable, start, records, diverging, aborted, leader = row
    size = len(records)
    if version >= _FLEXIBLE_FROM:
        if aborted:
            head = _head_with_aborted(version, row)
        else:
            listed = 0 if aborted is None else _EMPTY
            fields = (index, error, high_watermark, stable, start, listed, _NO_PREFERRED_REPLICA)
            head = _PARTITION_V12.pack(*fields) + write_unsigned_varint(size + 1)
        end = NO_TAGS
        if diverging is not None or leader is not None:
            end = _row_tags(version, diverging, leader)
        return (head, records, end) if size else (head + end,)
    listed = -1 if aborted is None else 0
    if aborted:
        head = _head_with_aborted(version, row)
    elif version >= 11:
        head = _PARTITION_V11.pack(
            index, error, high_watermark, stable, start, listed, _NO_PREFERRED_REPLICA, size
        )
    elif version >= 5:
        head = _PARTITION_V5.pack(index, error, high_watermark, stable, start, listed, size)
    else:
        head = _PARTITION_V4.pack(index, error, high_watermark, stable, listed, size)
    return (head, records) if size else (head,)


def join_rows(
    version: int,
    topics: Sequence[PackedTopic],
    records_size: int,
    hints: Sequence[LeaderHint] = (),
) -> bytes | list[bytes]:
    """The body of an answer without a session, of rows packed before; in buffers if it has so many bytes of records.

    Equals `encode_fetch_response`; small pieces are joined. `hints`: the leaders that rows name.
    """
    out: list[bytes] = []
    is_flexible = version >= _FLEXIBLE_FROM
    if is_flexible:
        count = write_unsigned_varint(len(topics) + 1)
        out.append(_HEAD_V12.pack(ErrorCode.NONE, NO_SESSION) + count)
    elif version >= 7:
        out.append(_HEAD_V7.pack(ErrorCode.NONE, NO_SESSION, len(topics)))
    else:
        out.append(_HEAD_V4.pack(len(topics)))
    for topic, rows, pieces in topics:
        if is_flexible:
            out.append(_topic(version, topic) + write_unsigned_varint(rows + 1))
            out += pieces
            out.append(NO_TAGS)
        else:
            name = str(topic).encode()
            out.append(_INT16.pack(len(name)) + name + _INT32.pack(rows))
            out += pieces
    if is_flexible:
        out.append(_tags(version, hints))
    return _in_buffers(out) if records_size > _JOINED_BYTES_MAX else b"".join(out)


def _in_buffers(pieces: Sequence[bytes]) -> list[bytes]:
    """The pieces, those joined that are smaller than a call costs."""
    out: list[bytes] = []
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < _ALONE_FROM_BYTES:
            small.append(piece)
            continue
        out += (b"".join(small), piece)
        small = []
    out.append(b"".join(small))
    return out


def _fixed(
    version: int, error_code: ErrorCode, topics: Sequence[TopicFetched], session_id: int
) -> tuple[list[bytes], int]:
    """The buffers of versions 4 to 11, and the bytes of records in them."""
    total = 0
    if version >= 7:
        out = [_HEAD_V7.pack(error_code, session_id, len(topics))]
    else:
        out = [_HEAD_V4.pack(len(topics))]
    for topic, partitions in topics:
        name = str(topic).encode()
        out.append(_INT16.pack(len(name)) + name + _INT32.pack(len(partitions)))
        for row in partitions:
            index, error, high_watermark, stable, start, records, _, aborted, _ = row
            size, listed = len(records), -1 if aborted is None else 0
            if aborted:
                head = _head_with_aborted(version, row)
            elif version >= 11:
                head = _PARTITION_V11.pack(
                    index, error, high_watermark, stable, start, listed, _NO_PREFERRED_REPLICA, size
                )
            elif version >= 5:
                head = _PARTITION_V5.pack(index, error, high_watermark, stable, start, listed, size)
            else:
                head = _PARTITION_V4.pack(index, error, high_watermark, stable, listed, size)
            out.append(head)
            if size:
                total += size
                out.append(records)
    return out, total


def _flexible(
    version: int, error_code: ErrorCode, topics: Sequence[TopicFetched], session_id: int
) -> tuple[list[bytes], int]:
    """The buffers of versions 12 to 17, and the bytes of records in them."""
    total = 0
    hints: list[LeaderHint] = []
    count = write_unsigned_varint(len(topics) + 1)
    out = [_HEAD_V12.pack(error_code, session_id) + count]
    for topic, partitions in topics:
        out.append(_topic(version, topic) + write_unsigned_varint(len(partitions) + 1))
        for row in partitions:
            index, error, high_watermark, stable, start, records, diverging, aborted, leader = row
            listed = 0 if aborted is None else _EMPTY
            fields = (index, error, high_watermark, stable, start, listed, _NO_PREFERRED_REPLICA)
            size = len(records)
            if aborted:
                out.append(_head_with_aborted(version, row))
            else:
                out.append(_PARTITION_V12.pack(*fields) + write_unsigned_varint(size + 1))
            if size:
                total += size
                out.append(records)
            if diverging is None and leader is None:
                out.append(NO_TAGS)
            else:
                out.append(_row_tags(version, diverging, leader))
                if leader is not None:
                    hints.append(leader)
        out.append(NO_TAGS)
    out.append(_tags(version, hints))
    return out, total


def _head_with_aborted(version: int, row: PartitionFetched) -> bytes:
    """The bytes of a row up to its records."""
    is_flexible = version >= _FLEXIBLE_FROM
    aborted = row.aborted or ()
    count, tags = len(aborted), NO_TAGS if is_flexible else b""
    out = [
        _PARTITION_BEGINNING.pack(
            row.partition, row.error_code, row.high_watermark, row.last_stable_offset
        )
    ]
    if version >= 5:
        out.append(_INT64.pack(row.log_start_offset))
    out.append(write_unsigned_varint(count + 1) if is_flexible else _INT32.pack(count))
    for producer_id, first_offset in aborted:
        out += (_ABORTED.pack(producer_id, first_offset), tags)
    if version >= 11:
        out.append(_INT32.pack(_NO_PREFERRED_REPLICA))
    size = len(row.records)
    out.append(write_unsigned_varint(size + 1) if is_flexible else _INT32.pack(size))
    return b"".join(out)


def _row_tags(version: int, diverging: tuple[int, int] | None, leader: LeaderHint | None) -> bytes:
    """The tagged fields of a row, which diverges or names a leader, never both."""
    if diverging is not None:
        # one tagged field: tag 0, 13 bytes: epoch, end offset, no tags of its own
        return b"\x01\x00\x0d" + _EPOCH_END.pack(*diverging) + NO_TAGS
    if leader is None or version < _LEADERS_FROM:
        return NO_TAGS
    return encode_leader(_LEADER_TAG, leader)


def _tags(version: int, hints: Sequence[LeaderHint]) -> bytes:
    """The tagged fields of the whole answer."""
    return encode_endpoints(hints) if hints and version >= _LEADERS_FROM else NO_TAGS


def _topic(version: int, topic: str | uuid.UUID) -> bytes:
    if version >= _TOPIC_IDS_FROM:
        assert isinstance(topic, uuid.UUID)
        return topic.bytes
    name = str(topic).encode()
    return write_unsigned_varint(len(name) + 1) + name
