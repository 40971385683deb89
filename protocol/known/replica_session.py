"""A follower's fetch in a session as followers of this version send it, its fields in this order.

Equals `locate_fields` with `SessionFetch.read`, which read what is not known, and say what is wrong with it.
`tests/protocol/known/test_replica_session.py` compares both. Called by `broker/native/exchange.py`.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

import msgpack

from echoless.protocol.framing import Frame
from echoless.protocol.known.replica_fetch import READ_AT_ONCE_BYTES, read_row
from echoless.protocol.native.answers import INT64_MAX
from echoless.protocol.native.codec import ENTRIES_MAX, RECORD_FIELDS_MAX
from echoless.protocol.native.replica_session import (
    FORGOTTEN_MAX,
    NAMED_MAX,
    NamedRow,
    SessionFetch,
)
from echoless.protocol.native.replication import INT32_MAX, INT64_MIN, WAIT_MS_MAX

_NAMES: Final = (
    "type",
    "broker_id",
    "broker_epoch",
    "max_wait_ms",
    "bytes_max",
    "session",
    "session_epoch",
    "partitions",
    "forgotten",
    "correlation_id",
)
SESSION_BEGINNING: Final = (
    bytes((0x80 + len(_NAMES),)) + msgpack.packb("type") + msgpack.packb("replica_fetch")
)
"""The first bytes of a usual fetch in a session, as many as of one without."""
_fields: Final = itemgetter(*_NAMES)


def read_usual_session_fetch(frame: Frame) -> tuple[int, SessionFetch] | None:
    """`(correlation id, message)`; None if it is another one, a large one, or not as followers send it."""
    if (
        type(frame) is not bytes
        or len(frame) > READ_AT_ONCE_BYTES
        or not frame.startswith(SESSION_BEGINNING)
    ):
        return None
    try:
        fields = msgpack.unpackb(
            frame, max_array_len=ENTRIES_MAX, max_map_len=RECORD_FIELDS_MAX, max_ext_len=0
        )
        # As many names as fields, and each of them is there: so none is there twice.
        _, broker_id, broker_epoch, max_wait_ms, bytes_max, session, epoch, rows, gone, number = (
            _fields(fields)
        )
        named = [_read_row(row) for row in rows]
    except (msgpack.UnpackException, ValueError, KeyError, TypeError):
        return None
    if (
        type(rows) is type(gone) is list
        and len(rows) <= NAMED_MAX
        and len(gone) <= FORGOTTEN_MAX
        and type(broker_id) is type(broker_epoch) is type(number) is int
        and type(max_wait_ms) is type(bytes_max) is type(session) is type(epoch) is int
        and all(type(one) is int for one in gone)
        and 0 <= broker_id <= INT32_MAX
        and INT64_MIN <= broker_epoch <= INT64_MAX
        and 0 <= max_wait_ms <= WAIT_MS_MAX
        and 1 <= bytes_max <= INT32_MAX
        and 1 <= session <= INT64_MAX
        and 0 <= epoch <= INT64_MAX
    ):
        return number, SessionFetch(
            broker_id, broker_epoch, max_wait_ms, bytes_max, session, epoch, named, gone
        )
    return None


def _read_row(row: Any) -> NamedRow:
    """One row. Raises `ValueError`, `KeyError` or `TypeError` if it is not as it should be."""
    number = row["number"]
    if type(number) is int and 0 <= number <= INT64_MAX:
        return NamedRow(number, read_row(row))
    raise ValueError("not the usual row")
