"""The answer to a produced batch that is stored: packed by hand, because there is one for every batch.

`tests/broker/native/test_acknowledged.py` compares it with what `encode_message` makes of the same fields.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgpack

from echoless.broker.native.failure import SUCCESS
from echoless.protocol.native.codec import encode_message

_FIELDS: Final = {"type": "produce", "correlation_id": None}
_FIELDS_COUNT: Final = 7
_FIXMAP: Final = 0x80
_HEAD: Final = bytes((_FIXMAP | _FIELDS_COUNT,)) + encode_message(_FIELDS)[1:-1]
"""The bytes before the correlation id."""
_MIDDLE: Final = encode_message(SUCCESS)[1:] + encode_message({"base_offset": None})[1:-1]
"""The bytes before the base offset."""
_pack: Final = msgpack.Packer().pack
_pack_length: Final = struct.Struct(">i").pack


class Acknowledged(NamedTuple):
    """The fields of the answer, without an error."""

    base_offset: int
    log_append_time: int
    log_start_offset: int
    is_duplicate: bool

    def fields(self) -> dict[str, Any]:
        """The same by their names."""
        return {"base_offset": self.base_offset, **_end(*self[1:])}


def encode_acknowledged(correlation_id: int | None, answer: Acknowledged) -> bytes:
    """The framed answer."""
    base_offset, log_append_time, log_start_offset, is_duplicate = answer
    end = _packed_end(log_append_time, log_start_offset, is_duplicate)
    body = b"".join((_HEAD, _pack(correlation_id), _MIDDLE, _pack(base_offset), end))
    return _pack_length(len(body)) + body


def _end(log_append_time: int, log_start_offset: int, is_duplicate: bool) -> dict[str, Any]:
    return {
        "log_append_time": log_append_time,
        "log_start_offset": log_start_offset,
        "duplicate": is_duplicate,
    }


@lru_cache(maxsize=1000)
def _packed_end(log_append_time: int, log_start_offset: int, is_duplicate: bool) -> bytes:
    """Packs the fields after the base offset, which most answers share: with create time the append time is -1."""
    return encode_message(_end(log_append_time, log_start_offset, is_duplicate))[1:]
