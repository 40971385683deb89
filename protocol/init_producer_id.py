"""InitProducerId, read and packed by hand: kio would cost the first producer 10 ms.

Layout by version: v2 is flexible; v3 adds the producer id and epoch that the client has; v4 and v5 are v3; v6 adds
two-phase commit (KIP-939). The transaction timeout is in ms. `tests/protocol/test_first_requests.py` compares
every version with kio. Pure.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.framing import Frame
from echoless.protocol.headers import NO_TAGS, skip_tagged_fields
from echoless.protocol.request_fields import boolean, nullable_string, refusing_cut_frames
from echoless.protocol.sequence import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_TIMEOUT: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qh")
_RESPONSE: Final = struct.Struct(">ihqh")
_FLEXIBLE_FROM, _PRODUCER_FROM, _TWO_PHASE_FROM = 2, 3, 6


class InitProducerIdRequest(NamedTuple):
    transactional_id: str | None
    timeout_ms: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    enable2_pc: bool = False
    keep_prepared_txn: bool = False


def _decode(version: int, frame: Frame, position: int) -> InitProducerIdRequest:
    flexible = version >= _FLEXIBLE_FROM
    transactional_id, position = nullable_string(frame, position, flexible=flexible)
    (timeout_ms,) = _TIMEOUT.unpack_from(frame, position)
    position += _TIMEOUT.size
    producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if version >= _PRODUCER_FROM:
        producer_id, producer_epoch = _PRODUCER.unpack_from(frame, position)
        position += _PRODUCER.size
    enable2_pc = keep_prepared_txn = False
    if version >= _TWO_PHASE_FROM:
        enable2_pc, position = boolean(frame, position)
        keep_prepared_txn, position = boolean(frame, position)
    if flexible:
        skip_tagged_fields(frame, position)
    return InitProducerIdRequest(
        *(transactional_id, timeout_ms, producer_id, producer_epoch, enable2_pc, keep_prepared_txn)
    )


decode_init_producer_id_request: Final = refusing_cut_frames("init_producer_id", _decode)


def encode_init_producer_id_response(
    version: int,
    error_code: ErrorCode,
    producer_id: int,
    producer_epoch: int,
    kept: tuple[int, int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH),
) -> bytes:
    """The body; from version 6 on with the session that wrote the transaction that is kept."""
    packed = _RESPONSE.pack(0, error_code, producer_id, producer_epoch)
    if version >= _TWO_PHASE_FROM:
        packed += _PRODUCER.pack(*kept)
    return packed + NO_TAGS if version >= _FLEXIBLE_FROM else packed
