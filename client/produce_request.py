"""The Produce request, packed by hand: kio would copy a batch four times on its way out.

Layout (`docs/protocol/produce.md`): v3-8 classic, v9-12 flexible. One batch for each partition;
acks=all, no transaction. `tests/client/test_produce_request.py` decodes every version with kio.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from echoless.protocol.headers import write_unsigned_varint

FLEXIBLE_FROM: Final = 9
ACKS_ALL: Final = -1

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class PartitionBatch(NamedTuple):
    """One partition's batch in a request."""

    topic: str
    partition: int
    data: bytes


def encode_produce_request(
    version: int, batches: Sequence[PartitionBatch], *, timeout_ms: int
) -> list[bytes]:
    """The body in parts, including each batch's data without a copy.

    No two batches may be for one partition: a broker would store only the last one.
    """
    is_flexible = version >= FLEXIBLE_FROM
    size = _compact_size if is_flexible else _INT32.pack
    name_size = _compact_size if is_flexible else _INT16.pack
    no_transaction = b"\x00" if is_flexible else b"\xff\xff"
    no_tags = b"\x00" if is_flexible else b""
    by_topic: dict[str, list[PartitionBatch]] = {}
    for batch in batches:
        by_topic.setdefault(batch.topic, []).append(batch)
    parts = [no_transaction, _ACKS_TIMEOUT.pack(ACKS_ALL, timeout_ms), size(len(by_topic))]
    for topic, of_topic in by_topic.items():
        name = topic.encode()
        parts += (name_size(len(name)), name, size(len(of_topic)))
        for _, partition, data in of_topic:
            parts += (_INT32.pack(partition), size(len(data)), data, no_tags)
        parts.append(no_tags)
    parts.append(no_tags)
    return parts


def _compact_size(size: int) -> bytes:
    return write_unsigned_varint(size + 1)
