"""Batches that are small on the wire and large when they are read (item 2 of the issue)."""

from __future__ import annotations

import functools
import random

from tests.hostile.siege.attacker import Line, OnOneLine
from tests.support.raw_batches import Batch, plain_batch, record
from tests.support.raw_produce import PartitionData

_TOPIC = "bombs"
_VERSION = 7
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_BOMB_BYTES = 100_000_000
_TINY_RECORDS = 1_000_000
_TINY_COUNTS = (10_000, 100_000, _TINY_RECORDS)
_MESSAGE_BYTES_MAX = 1_048_588


async def _produce(line: Line, topic: str, batch: Batch) -> str:
    (row,) = await line.produce(_VERSION, 1, [PartitionData(topic, 0, batch.encode())])
    return "stored" if row.error == 0 else f"error {row.error}"


class Bombs(OnOneLine):
    name = "bombs"
    does = "100 MB of zeros in gzip, snappy, lz4 and zstd, claiming from 1 to 100 million records"
    pause_s = 0.2

    def prepare(self) -> None:
        for codec in _CODECS:
            _bomb(codec)

    async def ask(self, line: Line, rng: random.Random) -> str:
        codec = rng.choice(list(_CODECS))
        count = rng.choice((1, 1000, _TINY_RECORDS, _BOMB_BYTES))
        batch = Batch(payload=_bomb(codec), record_count=count, attributes=codec)
        return await _produce(line, _TOPIC, batch)


class TinyRecords(OnOneLine):
    name = "tiny-records"
    does = "up to a million empty records in one compressed batch, rightly framed"
    pause_s = 0.3

    def prepare(self) -> None:
        for codec in _CODECS:
            for count in _TINY_COUNTS:
                _tiny(codec, count)

    async def ask(self, line: Line, rng: random.Random) -> str:
        codec = rng.choice(list(_CODECS))
        count = rng.choice(_TINY_COUNTS)
        batch = Batch(payload=_tiny(codec, count), record_count=count, attributes=codec)
        return await _produce(line, _TOPIC, batch)


class Claims(OnOneLine):
    name = "claims"
    does = "uncompressed batches that claim up to 2^31 - 1 records, or a wrong length or CRC"

    async def ask(self, line: Line, rng: random.Random) -> str:
        batch = plain_batch([b"x"] * 3, base_sequence=0, producer_id=5, producer_epoch=0)
        field, value = rng.choice(
            (
                ("record_count", 100_000_000),
                ("record_count", 2**31 - 1),
                ("record_count", -1),
                ("last_offset_delta", 2**31 - 1),
                ("batch_length", 2**31 - 1),
                ("batch_length", 0),
                ("crc", rng.getrandbits(32)),
                ("magic", rng.randrange(-128, 128)),
            )
        )
        setattr(batch, field, value)
        return await _produce(line, _TOPIC, batch)


@functools.cache
def _bomb(codec: int) -> bytes:
    """Zeros, as many of them as a batch may have when it is compressed."""
    size = _BOMB_BYTES
    while len(packed := _compress(codec, bytes(size))) > _MESSAGE_BYTES_MAX - 100:
        size //= 2
    return packed


@functools.cache
def _tiny(codec: int, count: int) -> bytes:
    return _compress(codec, _empty_records()[: len(record(0, b"")) * count])


@functools.cache
def _empty_records() -> bytes:
    """Every one with the offset delta 0, which is wrong for all but the first, and framed rightly."""
    return record(0, b"") * _TINY_RECORDS


def _compress(codec: int, data: bytes) -> bytes:
    import cramjam

    if codec == 2:
        return bytes(cramjam.snappy.compress_raw(data))
    module = {1: cramjam.gzip, 3: cramjam.lz4, 4: cramjam.zstd}[codec]
    return bytes(module.compress(data))
