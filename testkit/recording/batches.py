"""The bytes of a recorded batch for another broker: its own records, or others of the same sizes in their place."""

from __future__ import annotations

import random
from typing import Final

from echoless.protocol.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    BatchHeader,
    seal_batch,
)
from echoless.protocol.records import Record, encode_records
from echoless.testkit.recording.steps import PlayableBatch

_RECORD_OVERHEAD: Final = 12
"""Bytes of a record besides its value, about."""


def batch_for(batch: PlayableBatch, producer_id: int, producer_epoch: int) -> bytes:
    """The whole batch, as this producer would send it: the same sequences, times and records.

    Without records in the recording: as many, of about the same size, not compressed. Their bytes follow from the
    batch's checksum, so that a repeated batch is repeated, and another one with the same numbers is another one.
    """
    fields, records = batch.fields, batch.records
    attributes = fields["attributes"]
    if records is None:
        attributes &= ~CODEC_MASK
        records = _stand_in(batch)
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=fields["last_offset_delta"],
        base_timestamp=fields["base_timestamp"],
        max_timestamp=fields["max_timestamp"],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=fields["base_sequence"],
        record_count=fields["record_count"],
    )
    return seal_batch(header, records)


def _stand_in(batch: PlayableBatch) -> bytes:
    fields = batch.fields
    count, source = fields["record_count"], random.Random(fields["crc"])  # noqa: S311  no secret
    size = max(0, (fields["size_bytes"] - HEADER_SIZE) // max(count, 1) - _RECORD_OVERHEAD)
    base_ms: int = fields["base_timestamp"]
    times: dict[int, int] = {count - 1: fields["max_timestamp"], 0: base_ms}
    return bytes(
        encode_records(
            [
                Record(0, times.get(index, base_ms), None, source.randbytes(size))
                for index in range(count)
            ]
        )
    )
