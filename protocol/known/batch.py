"""The usual produced batch, whose header passes all steps of `batch_validation.py` in one look.

Equals `check_container` and `check_batch`, which read what is not known, and say what is wrong with it.
`tests/protocol/test_batch_validation.py` compares both.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.batch_validation import (
    ANY_TIMESTAMP,
    ZSTD_PRODUCE_VERSION_MIN,
    TimestampRules,
)
from echoless.protocol.checksum import crc32c
from echoless.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BYTES_MIN,
    RECORDS_MAX,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
)

_unpack_header: Final = BATCH_HEADER.unpack_from
_LAST_CODEC: Final = int(Codec.ZSTD)


def sound_header(
    records: Buffer | None, produce_version: int, bytes_max: int, timestamp_rules: TimestampRules
) -> BatchHeader | None:
    """The header of a usual batch that passes all steps; None: only the steps can tell."""
    if (
        records is None
        or len(records) < HEADER_SIZE
        or timestamp_rules is not ANY_TIMESTAMP
        or produce_version < ZSTD_PRODUCE_VERSION_MIN
    ):
        return None
    fields = _unpack_header(records)
    base, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = fields
    if (
        magic == MAGIC
        and length + LOG_OVERHEAD == len(records) <= bytes_max
        and not base
        and 0 < count == delta + 1
        and (
            count * RECORD_BYTES_MIN <= length - BATCH_LENGTH_MIN
            if not attributes or attributes == TRANSACTIONAL_BIT
            else 0 < attributes & ~TRANSACTIONAL_BIT <= _LAST_CODEC and count <= RECORDS_MAX
        )
        and (sequence >= 0 or producer_id < 0)
        and crc32c(memoryview(records)[ATTRIBUTES_POSITION:]) == crc
    ):
        return tuple.__new__(BatchHeader, fields)
    return None
