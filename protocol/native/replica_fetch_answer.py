"""The answer to a follower's fetch, packed by hand: 0.9 us a row where `encode_message` takes 2.4.

`tests/protocol/native/test_replica_fetch_answer.py` compares it with what `encode_message` makes of the same rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgpack

from echoless.protocol.native.codec import PACKED_BYTES_MAX
from echoless.protocol.native.replica_session import SESSION, FetchedRow
from echoless.protocol.native.replication import ReplicaFetched

_TYPE: Final = "replica_fetch"
_HEAD: Final = b"".join((b"\x84", *map(msgpack.packb, ("type", _TYPE, "correlation_id"))))
_SUCCEEDED: Final = b"".join(
    map(
        msgpack.packb,
        ("error", {"code": 0, "name": "NONE", "message": "", "retriable": False}, "partitions"),
    )
)
_ERROR: Final = b"\x85" + msgpack.packb("error") + b"\xd1"
_NUMBER: Final = b"\x86" + msgpack.packb("number") + b"\xd3"
_ERROR_OF_ROW: Final = _ERROR[1:]
_HIGH_WATERMARK: Final = msgpack.packb("high_watermark") + b"\xd3"
_LOG_START: Final = msgpack.packb("log_start_offset") + b"\xd3"
_BATCHES: Final = msgpack.packb("diverging") + b"\xc0" + msgpack.packb("batches") + b"\xc6"
_pack_row: Final = struct.Struct(
    f">{len(_ERROR)}sh{len(_HIGH_WATERMARK)}sq{len(_LOG_START)}sq{len(_BATCHES)}sI"
).pack
_pack_numbered: Final = struct.Struct(
    f">{len(_NUMBER)}sq{len(_ERROR_OF_ROW)}sh{len(_HIGH_WATERMARK)}sq{len(_LOG_START)}sq{len(_BATCHES)}sI"
).pack
_SESSION_HEAD: Final = b"\x85" + _HEAD[1:]
_SESSION: Final = msgpack.packb(SESSION)
_ARRAY: Final = struct.Struct(">BI")


class ReplicaFetchAnswer(NamedTuple):
    """The rows of an answer, in the order of the message."""

    fetched: Sequence[ReplicaFetched]

    def packed(self, correlation_id: int | None) -> tuple[bytes, ...]:
        """The bytes of the answer, without its length prefix; large batches are buffers of their own."""
        count = _ARRAY.pack(0xDD, len(self.fetched))
        packed = [_HEAD, msgpack.packb(correlation_id), _SUCCEEDED, count]
        buffers: list[bytes] = []
        for one in self.fetched:
            error, high_watermark, log_start_offset, diverging, batches = one
            if diverging is not None:
                packed.append(msgpack.packb(one.to_entry()))
                continue
            size = len(batches)
            packed.append(
                _pack_row(
                    *(_ERROR, error, _HIGH_WATERMARK, high_watermark),
                    *(_LOG_START, log_start_offset, _BATCHES, size),
                )
            )
            if size > PACKED_BYTES_MAX:
                buffers += (b"".join(packed), batches)
                packed = []
            else:
                packed.append(batches)
        buffers.append(b"".join(packed))
        return tuple(buffers)


class SessionAnswer(NamedTuple):
    """The rows of an answer in a session."""

    session: int
    rows: Sequence[FetchedRow]

    def packed(self, correlation_id: int | None) -> tuple[bytes, ...]:
        """The bytes of the answer, as `ReplicaFetchAnswer.packed` returns them."""
        packed = [
            *(_SESSION_HEAD, msgpack.packb(correlation_id), _SESSION, msgpack.packb(self.session)),
            *(_SUCCEEDED, _ARRAY.pack(0xDD, len(self.rows))),
        ]
        buffers: list[bytes] = []
        for number, one in self.rows:
            error, high_watermark, log_start_offset, diverging, batches = one
            if diverging is not None:
                packed.append(msgpack.packb({"number": number, **one.to_entry()}))
                continue
            size = len(batches)
            packed.append(
                _pack_numbered(
                    *(_NUMBER, number, _ERROR_OF_ROW, error, _HIGH_WATERMARK, high_watermark),
                    *(_LOG_START, log_start_offset, _BATCHES, size),
                )
            )
            if size > PACKED_BYTES_MAX:
                buffers += (b"".join(packed), batches)
                packed = []
            else:
                packed.append(batches)
        buffers.append(b"".join(packed))
        return tuple(buffers)
