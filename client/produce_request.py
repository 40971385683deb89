"""The Produce request, packed by hand: kio would copy a batch four times on its way out.

Layout (`dedup-spec.md` 5.1): v3-8 classic, v9-12 flexible. One batch of one partition; acks=all, no
transaction. `tests/client/test_produce_request.py` reads every version with kio.
"""

from __future__ import annotations

import struct
from typing import Final

from protocol.headers import write_unsigned_varint

FLEXIBLE_FROM: Final = 9
ACKS_ALL: Final = -1

_NULL: Final = b"\xff\xff"
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ONE: Final = _INT32.pack(1)
_COMPACT_NULL: Final = b"\x00"
_COMPACT_ONE: Final = b"\x02"
_NO_TAGS_THRICE: Final = b"\x00\x00\x00"
"""Of the partition, the topic and the request."""


def encode_produce_request(
    version: int, topic: str, partition: int, batch: bytes, *, timeout_ms: int
) -> tuple[bytes, bytes, bytes]:
    """The body, in three parts, the second of which is `batch` itself."""
    name = topic.encode()
    acks_timeout = _ACKS_TIMEOUT.pack(ACKS_ALL, timeout_ms)
    index = _INT32.pack(partition)
    if version < FLEXIBLE_FROM:
        size = _INT16.pack(len(name)) + name
        head = (_NULL, acks_timeout, _ONE, size, _ONE, index, _INT32.pack(len(batch)))
        return b"".join(head), batch, b""
    compact_name = write_unsigned_varint(len(name) + 1) + name
    batch_size = write_unsigned_varint(len(batch) + 1)
    head = (
        *(_COMPACT_NULL, acks_timeout, _COMPACT_ONE, compact_name),
        *(_COMPACT_ONE, index, batch_size),
    )
    return b"".join(head), batch, _NO_TAGS_THRICE
