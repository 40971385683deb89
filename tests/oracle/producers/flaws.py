"""Batches that no correct client sends, each made from a good one by a named change.

What a broker answers to them is not written here: both must answer alike. `Codec` batches at the
end are good ones, compressed.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import replace

import cramjam

from tests.oracle.producers.differences import BAD_FIELD
from tests.support.raw_batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batch, record, varint

Flaw = Callable[[random.Random, Batch], bytes]

_NO_CRC = 0


def _changed(**fields: int) -> Flaw:
    def make(_: random.Random, batch: Batch) -> bytes:
        return replace(batch, **fields).encode()  # type: ignore[arg-type]

    return make


def _bad_crc(rng: random.Random, batch: Batch) -> bytes:
    data = bytearray(batch.encode())
    data[rng.randrange(17, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _truncated(rng: random.Random, batch: Batch) -> bytes:
    data = batch.encode()
    return data[: rng.randrange(len(data))]


def _two_batches(_: random.Random, batch: Batch) -> bytes:
    sequence = (batch.base_sequence + batch.record_count) % 2**31
    follower = replace(batch, base_sequence=sequence)
    return batch.encode() + follower.encode()


def _wrong_record_count(rng: random.Random, batch: Batch) -> bytes:
    return replace(batch, record_count=rng.choice([0, -1, batch.record_count + 1])).encode()


def _wrong_offset_delta(rng: random.Random, batch: Batch) -> bytes:
    wrong = rng.choice([-1, -5, 2**31 - 1, batch.last_offset_delta + 1])
    return replace(batch, last_offset_delta=wrong).encode()


def _records_missing(_: random.Random, batch: Batch) -> bytes:
    count = batch.record_count + 1
    return replace(batch, record_count=count, last_offset_delta=count - 1).encode()


def _records_left_over(_: random.Random, batch: Batch) -> bytes:
    return replace(batch, payload=batch.payload + record(batch.record_count, b"surplus")).encode()


def _garbage_records(rng: random.Random, batch: Batch) -> bytes:
    claim = varint(2**20)  # so that no luck makes the lengths add up
    return replace(batch, payload=claim + rng.randbytes(len(batch.payload))).encode()


def _bad_field(rng: random.Random, batch: Batch) -> bytes:
    """One record of the right length, whose key claims more."""
    body = bytes(3) + varint(rng.choice([9, 40, 1000])) + varint(0) + b"\0"
    payload = varint(len(body)) + body
    return replace(batch, payload=payload, record_count=1, last_offset_delta=0).encode()


def _no_records(_: random.Random, batch: Batch) -> bytes:
    return replace(batch, payload=b"").encode()


def _length(rng: random.Random, batch: Batch) -> bytes:
    return replace(batch, batch_length=rng.choice([-1, 0, 13])).encode()


def _headless(rng: random.Random, batch: Batch) -> bytes:
    """Nothing follows, so that no timestamp is taken for the magic of a second batch."""
    length = rng.choice([14, 48])
    return replace(batch, batch_length=length).encode()[: 12 + length]


def _unknown_codec(rng: random.Random, batch: Batch) -> bytes:
    return replace(batch, attributes=rng.choice([5, 6, 7])).encode()


def _undecodable(rng: random.Random, batch: Batch) -> bytes:
    """Records that are not compressed, or an lz4 frame whose blocks are linked."""
    if rng.random() < 0.3:
        linked = bytes(cramjam.lz4.compress(batch.payload))
        return replace(batch, attributes=3, payload=linked).encode()
    return replace(batch, attributes=rng.choice([1, 2, 3, 4])).encode()


def _negative_sequence(rng: random.Random, batch: Batch) -> bytes:
    wrong = rng.choice([-1, -2, -(2**31)])
    return replace(batch, base_sequence=wrong, producer_id=max(batch.producer_id, 0)).encode()


def _empty(_: random.Random, __: Batch) -> bytes:
    return b""


def _wrong_magic(rng: random.Random, batch: Batch) -> bytes:
    return replace(batch, magic=rng.choice([-1, 0, 1, 3, 127])).encode()


def _too_large(_: random.Random, batch: Batch) -> bytes:
    """For topics with a small max.message.bytes."""
    payload = record(0, b"x" * 2000)
    return replace(batch, payload=payload, record_count=1, last_offset_delta=0).encode()


FLAWS: dict[str, Flaw] = {
    "bad crc": _bad_crc,
    "crc 0": _changed(crc=_NO_CRC),
    "wrong magic": _wrong_magic,
    "truncated": _truncated,
    "two batches": _two_batches,
    "wrong record count": _wrong_record_count,
    "wrong offset delta": _wrong_offset_delta,
    "records missing": _records_missing,
    "records left over": _records_left_over,
    "garbage records": _garbage_records,
    BAD_FIELD: _bad_field,
    "no records": _no_records,
    "wrong length": _length,
    "headless": _headless,
    "endless": _changed(batch_length=2**31 - 1),
    "unknown codec": _unknown_codec,
    "undecodable": _undecodable,
    "negative sequence": _negative_sequence,
    "control bit": _changed(attributes=CONTROL),
    "transactional bit": _changed(attributes=TRANSACTIONAL),
    "log-append-time bit": _changed(attributes=LOG_APPEND_TIME),
    "base offset not 0": _changed(base_offset=7),
    "empty": _empty,
}
"""Null records are left out: Apache Kafka 3.9 stumbles over them and never answers."""
TOO_LARGE: Flaw = _too_large


def left_over(rng: random.Random, data: bytes) -> bytes:
    """A good batch followed by an incomplete one, or by too few bytes to tell."""
    return data + rng.choice([b"\0", b"\0" * 11, data[:40], data[:-1]])


def compressed(rng: random.Random, batch: Batch) -> tuple[str, Batch]:
    """The same batch, its records compressed; the name of the codec first."""
    name = rng.choice(("gzip", "snappy", "lz4", "zstd"))
    codec = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[name]
    return name, replace(batch, attributes=codec, payload=_COMPRESSORS[name](batch.payload))


def uncompressed(attributes: int, data: bytes) -> bytes:
    """The records as they were before `compressed`; damaged ones stay as they are."""
    decompress = _DECOMPRESSORS.get(attributes & 7, bytes)
    try:
        return bytes(decompress(data))
    except (ValueError, OSError, EOFError, cramjam.DecompressionError):
        return data


_DECOMPRESSORS = {
    1: cramjam.gzip.decompress,
    2: cramjam.snappy.decompress_raw,
    3: cramjam.lz4.decompress,
    4: cramjam.zstd.decompress,
}


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _lz4(data: bytes) -> bytes:
    """Kafka reads no frames with linked blocks, which are cramjam's default."""
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
