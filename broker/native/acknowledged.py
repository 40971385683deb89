"""The answer to a produced batch, from the row that it shares with the Kafka port.

That of a batch that is stored is packed by hand, because there is one for every batch:
`tests/broker/native/test_acknowledged.py` compares it with what `encode_message` makes of the same fields.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

import msgpack

from echoless.broker.native.failure import SUCCESS
from echoless.broker.records.append import RepeatProduced
from echoless.protocol.native.codec import encode_message
from echoless.protocol.produce import PartitionProduced

_FIELDS: Final = {"type": "produce", "correlation_id": None}
_FIELDS_COUNT: Final = 7
_FIXMAP: Final = 0x80
_HEAD: Final = bytes((_FIXMAP | _FIELDS_COUNT,)) + encode_message(_FIELDS)[1:-1]
"""The bytes before the correlation id."""
_MIDDLE: Final = encode_message(SUCCESS)[1:] + encode_message({"base_offset": None})[1:-1]
"""The bytes before the base offset."""
_pack: Final = msgpack.Packer().pack
_pack_length: Final = struct.Struct(">i").pack


def produced_fields(produced: PartitionProduced) -> dict[str, Any]:
    """The fields of the answer by their names, without the error."""
    _, _, base_offset, log_append_time, log_start_offset = produced[:5]
    end = _end(log_append_time, log_start_offset, isinstance(produced, RepeatProduced))
    return {"base_offset": base_offset, **end}


def encode_acknowledged(correlation_id: int | None, produced: PartitionProduced) -> bytes:
    """The framed answer to a batch that is stored."""
    _, _, base_offset, log_append_time, log_start_offset = produced[:5]
    end = _packed_end(log_append_time, log_start_offset, isinstance(produced, RepeatProduced))
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
