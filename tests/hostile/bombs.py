"""Batches that are small on the wire and large when opened, or claim to be."""

from __future__ import annotations

import functools

import cramjam

from echoless.protocol.record_batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    BatchHeader,
    Codec,
    seal_batch,
)
from echoless.protocol.records import Record, build_batch
from tests.support.raw_batches import varint

EMPTY = b"\0"
"""A record of length zero."""


def batch_of(payload: bytes, record_count: int, codec: Codec, *, base_sequence: int = -1) -> bytes:
    """A batch with a good CRC that claims `record_count` records in `payload`."""
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=record_count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1 if base_sequence < 0 else 1,
        producer_epoch=-1 if base_sequence < 0 else 0,
        base_sequence=base_sequence,
        record_count=record_count,
    )
    return seal_batch(header, compressed(codec, payload))


def compressed(codec: Codec, payload: bytes) -> bytes:
    """Compressed as small as the codec can."""
    if codec is Codec.NONE:
        return payload
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(payload, level=1))
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(payload, level=6))
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(payload))
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(payload)
    return bytes(compressor.finish())


CODECS = tuple(codec for codec in Codec if codec is not Codec.NONE)


@functools.cache
def empty_records(codec: Codec, count: int = 1_000_000, *, claimed: int | None = None) -> bytes:
    """`count` records of length zero."""
    return batch_of(EMPTY * count, claimed or count, codec)


@functools.cache
def tiny_records(count: int, codec: Codec, *, base_sequence: int = -1) -> bytes:
    """Honest: `count` of the smallest records, with their offsets."""
    deltas = (varint(index) for index in range(count))
    payload = b"".join(b"%c\0\0%b\1\1\0" % (2 * (5 + len(delta)), delta) for delta in deltas)
    return batch_of(payload, count, codec, base_sequence=base_sequence)


@functools.cache
def many_headers(count: int, codec: Codec) -> bytes:
    """One record with this many headers, whose keys are empty and whose values are null."""
    headers = tuple(("", None) for _ in range(count))
    return build_batch(
        [Record(0, 0, None, None, headers)],
        codec=codec,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )


@functools.cache
def zeros(size: int, codec: Codec) -> bytes:
    """One record whose value expands to this many bytes."""
    return build_batch([Record(0, 0, None, bytes(size))], codec=codec)
