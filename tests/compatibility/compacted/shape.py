"""One random partition of a compacted topic, from a seed: its batches, and the naive model of what is left of them. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from echoless.protocol.record_batch import Codec
from echoless.protocol.records import Record, build_batch

SEGMENT_MS: Final = 3_600_000
_PRODUCERS: Final = ("none", "one", "many", "mixed")
_HEADERS_MAX: Final = 2
_RECORD_OVERHEAD: Final = 100
_TAIL_BATCHES: Final = 3


@dataclass(slots=True, frozen=True)
class Shape:
    """The batches of one partition. Those of `tail` are a segment's time younger, and are not cleaned.

    So the last batch of `head` closes no segment, and the first one of `tail` does.
    """

    head: Sequence[bytes]
    tail: Sequence[bytes]
    records: Sequence[Record]
    """All of them, by offset."""
    tail_offset: int
    about: str

    def left(self, *, with_tombstones: bool) -> list[Record]:
        """The last record of each key, without deleted keys unless wanted, then the whole tail."""
        newest = {record.key: record for record in self.records if record.offset < self.tail_offset}
        kept = (one for one in newest.values() if with_tombstones or one.value is not None)
        tail = (one for one in self.records if one.offset >= self.tail_offset)
        return [*sorted(kept, key=lambda record: record.offset), *tail]


def random_shape(seed: int, number: int, segment_bytes: int, now_ms: int) -> Shape:
    """The shape of that number, whose batches are smaller than a segment; it needs none before it."""
    rng = random.Random(f"{seed} {number}")
    maker = _Maker(rng, segment_bytes)
    head = [maker.batch(now_ms - 2 * SEGMENT_MS) for _ in range(rng.choice((5, 60, 300)))]
    tail_offset = len(maker.records)
    tail = [maker.batch(now_ms, records_max=1) for _ in range(rng.randint(1, _TAIL_BATCHES))]
    return Shape(head, tail, maker.records, tail_offset, maker.about)


class _Maker:
    """Makes the batches of one partition, by choices that hold for all of them."""

    def __init__(self, rng: random.Random, segment_bytes: int) -> None:
        self.records: list[Record] = []
        self._rng = rng
        self._keys = list(_keys(rng, rng.choice((1, 2, 8, 200))))
        self._sizes = rng.choice(((0, 1), (20,), (0, 20, 200, 3000)))
        self._tombstones = rng.choice((0.0, 0.1, 0.7))
        self._records_max = rng.choice((1, 3, 20))
        self._producers = rng.choice(_PRODUCERS)
        self._codecs = rng.choice([[codec] for codec in Codec] + [list(Codec)])
        self._batch_bytes_max = segment_bytes // (_TAIL_BATCHES + 2)
        self._producer_id, self._sequence = rng.randrange(10**6, 10**9), 0
        self.about = (
            f"{len(self._keys)} keys, values of {self._sizes}, tombstones {self._tombstones}, "
            f"1 to {self._records_max} records, producers: {self._producers}, {[c.name for c in self._codecs]}"
        )

    def batch(self, now_ms: int, records_max: int | None = None) -> bytes:
        """One more batch of the partition."""
        records = list(self._some(now_ms, records_max or self._records_max))
        self.records += records
        codec = self._rng.choice(self._codecs)
        if self._is_plain():
            return build_batch(records, codec=codec)
        built = build_batch(
            records,
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += len(records)
        return built

    def _is_plain(self) -> bool:
        """Whether the next batch has no producer; otherwise it may have another than the last one."""
        kind = self._rng.choice(_PRODUCERS[:3]) if self._producers == "mixed" else self._producers
        if kind == "many":
            self._producer_id, self._sequence = self._producer_id + 1, 0
        return kind == "none"

    def _some(self, now_ms: int, records_max: int) -> Iterator[Record]:
        rng, room = self._rng, self._batch_bytes_max
        for index in range(rng.randint(1, records_max)):
            key, size = rng.choice(self._keys), rng.choice(self._sizes)
            size = min(size, self._batch_bytes_max // 2)
            room -= len(key) + size + _RECORD_OVERHEAD
            if index and room < 0:
                return
            value = None if rng.random() < self._tombstones else rng.randbytes(1) * size
            headers = [("h", rng.randbytes(3))] * rng.randrange(_HEADERS_MAX + 1)
            offset = len(self.records) + index
            yield Record(offset, now_ms + rng.randrange(1000), key, value, headers)


def _keys(rng: random.Random, count: int) -> Iterator[bytes]:
    """Keys of a few bytes; some are empty or long."""
    for number in range(count):
        kind = rng.randrange(10)
        yield b"" if not (kind or number) else b"%d" % number + b"k" * (100 if kind == 1 else 0)
