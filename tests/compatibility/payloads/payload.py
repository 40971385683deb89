"""One random payload: records, compressed in some way or other, whole or damaged. Pure, from a seed."""

from __future__ import annotations

import random
from typing import NamedTuple

from echoless.protocol.record_batch import Codec
from tests.compatibility.payloads import gzip_frames, lz4_frames, snappy_frames, zstd_frames
from tests.support.raw_batches import Batch, record

_ENCODERS = {
    Codec.GZIP: gzip_frames.encode,
    Codec.SNAPPY: snappy_frames.encode,
    Codec.LZ4: lz4_frames.encode,
    Codec.ZSTD: zstd_frames.encode,
}
_DAMAGED = 0.2
_FIRST_PRODUCER_ID = 1_000_000


class Payload(NamedTuple):
    """The compressed records of one batch, and in words how they came about."""

    number: int
    codec: Codec
    data: bytes
    record_count: int
    is_damaged: bool
    about: str

    def batch(self, timestamp: int) -> bytes:
        """The batch as an idempotent producer sends it first, so that brokers open every record.

        Every third that is not damaged comes from a plain producer.
        """
        is_plain = not self.is_damaged and self.number % 3 == 0
        return Batch(
            payload=self.data,
            record_count=self.record_count,
            producer_id=-1 if is_plain else _FIRST_PRODUCER_ID + self.number,
            producer_epoch=-1 if is_plain else 0,
            base_sequence=-1 if is_plain else 0,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            attributes=int(self.codec),
        ).encode()


def random_payload(seed: int, number: int) -> Payload:
    """The payload of that number; it needs none before it."""
    rng = random.Random(f"{seed} {number}")
    count, records = _records(rng)
    codec = rng.choice(list(_ENCODERS))
    encoded = _ENCODERS[codec](rng, records)
    data, about = encoded
    is_damaged = rng.random() < _DAMAGED
    if is_damaged:
        data, how = _damaged(rng, data)
        about = f"{about}, {how}"
    return Payload(number, codec, data, count, is_damaged, about)


def _records(rng: random.Random) -> tuple[int, bytes]:
    """Few records, of which some are long, and compress well or not at all."""
    count = rng.choice((1, 1, 2, 3, 5, 40))
    size = rng.choice((0, 1, 10, 50, 300, 4_000, 70_000, 300_000)) // count
    values = (_value(rng, size) for _ in range(count))
    return count, b"".join(record(n, value, key=b"k") for n, value in enumerate(values))


def _value(rng: random.Random, size: int) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(size)
    if kind == 1:
        return rng.randbytes(1) * size
    part = rng.randbytes(rng.randint(1, 200))
    return (part * (size // len(part) + 1))[:size]


def _damaged(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """One bit, one byte or the end is another. Frames have most of their fields in front."""
    near = min(len(data), rng.choice((12, 40, 1 << 30)))
    position = rng.randrange(max(near, 1))
    kind = rng.randrange(5)
    if kind == 0 or not data:
        return data[:position], f"cut at {position}"
    if kind == 1:
        return data[:position] + rng.randbytes(1) + data[position:], f"a byte more at {position}"
    if kind == 2:
        return data[:position] + data[position + 1 :], f"a byte less at {position}"
    changed = bytearray(data)
    changed[position] ^= 1 << rng.randrange(8)
    return bytes(changed), f"a bit changed at {position}"
