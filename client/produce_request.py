"""The Produce request, packed by hand: kio would copy a batch four times on its way out.

Layout (`docs/protocol/produce.md`): v3-8 classic, v9-12 flexible. One batch for each partition;
acks=all. `tests/client/test_produce_request.py` decodes every version with kio.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from echoless.protocol.headers import write_unsigned_varint
from echoless.protocol.produce_response import VERSION_MAX

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


class ProduceTerms(NamedTuple):
    """The terms on which a producer sends its batches."""

    transactional_id: str | None = None
    version_max: int = VERSION_MAX
    """The newest version of the request: from 12 on, a leader puts the batch's partition into the transaction."""


NO_TRANSACTION: Final = ProduceTerms()


def encode_produce_request(
    version: int,
    batches: Sequence[PartitionBatch],
    *,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[bytes]:
    """The body in parts, including each batch's data without a copy.

    No two batches may be for one partition: a broker would store only the last one.
    """
    is_flexible = version >= FLEXIBLE_FROM
    size = _compact_size if is_flexible else _INT32.pack
    name_size = _compact_size if is_flexible else _INT16.pack
    transaction = b"\x00" if is_flexible else b"\xff\xff"
    if transactional_id is not None:
        encoded = transactional_id.encode()
        transaction = name_size(len(encoded)) + encoded
    no_tags = b"\x00" if is_flexible else b""
    by_topic: dict[str, list[PartitionBatch]] = {}
    for batch in batches:
        by_topic.setdefault(batch.topic, []).append(batch)
    parts = [transaction, _ACKS_TIMEOUT.pack(ACKS_ALL, timeout_ms), size(len(by_topic))]
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
