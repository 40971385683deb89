"""Values that a request may carry: plausible ones, and those that schemas or handlers overlook."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from echoless.protocol.record_batch import Codec
from echoless.protocol.records import Record, build_batch
from tests.hostile.bombs import CODECS, empty_records, tiny_records

TOPICS = ("fuzz-a", "fuzz-b", "fuzz-c")
_NAMES = (
    *TOPICS,
    "",
    "unknown",
    "..",
    "a/b",
    "x" * 249,
    "x" * 250,
    "y" * 32_767,
    "\0\n\x1b[31m",
    "\u00fc\U0001f4a5",
    "__consumer_offsets",
    "1",
    "-1",
    "99",
)
_CONFIGS = (
    ("retention.ms", "1000"),
    ("segment.bytes", "14"),
    ("min.insync.replicas", "-1"),
    ("max.message.bytes", "99999999999999999999"),
    ("message.timestamp.type", "LogAppendTime"),
    ("producer.state.batches.to.retain", "20"),
    ("cleanup.policy", "\0"),
    ("no.such", ""),
)
_INTEGERS = (0, 1, -1, 2, -2, 3, 127, -128, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31))
_LONGS = (*_INTEGERS, 2**63 - 1, -(2**63), 2**62, 1_700_000_000_000)
_CLAIMS = (100_000, 2**20, 2**31 - 1)
_PARTITION_COUNTS = (-1, 0, 1, 2, 3, -2, 2**31 - 1, -(2**31))
"""Few or impossible: a fuzz that creates a million partitions measures the disk."""
_COUNT_FIELDS = frozenset({"num_partitions", "count", "partitions"})


@dataclass
class Values:
    """Draws values. `rate` is how often a field is hostile instead of plausible."""

    rng: random.Random
    topic_ids: Sequence[uuid.UUID] = ()
    rate: float = 0.0
    records: list[bytes] = field(default_factory=list)

    def is_hostile(self) -> bool:
        return self.rng.random() < self.rate

    def text(self, name: str) -> str:
        if name == "value":
            return self.rng.choice(_CONFIGS)[1]
        if name in {"name", "topic", "config_name", "topic_names"} and not self.is_hostile():
            return self.rng.choice(TOPICS)
        if name == "configs.name":
            return self.rng.choice(_CONFIGS)[0]
        return self.rng.choice(_NAMES)

    def integer(self, name: str, bits: int) -> int:
        if name in _COUNT_FIELDS:
            return self.rng.choice(_PARTITION_COUNTS)
        if not self.is_hostile():
            return self.rng.choice((0, 0, 1, -1))
        pool = _LONGS if bits == 64 else _INTEGERS
        fitting = [one for one in pool if -(2 ** (bits - 1)) <= one < 2 ** (bits - 1)]
        return self.rng.choice(fitting)

    def topic_id(self) -> uuid.UUID:
        known = [*self.topic_ids, uuid.UUID(int=0)]
        if self.is_hostile():
            known = [uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]
        return self.rng.choice(known)

    def batch(self) -> bytes:
        """A record batch: whole, damaged with a good CRC, a bomb, or no batch."""
        if self.rng.random() < 0.03:
            return empty_records(self.rng.choice(CODECS), 100_000, claimed=self.rng.choice(_CLAIMS))
        if self.rng.random() < 0.01:
            return tiny_records(50_000, self.rng.choice(CODECS))
        count = self.rng.choice((1, 1, 2, 50))
        records = [
            Record(0, self.rng.choice((-1, 0, 2**40)), b"k", bytes(self.rng.randrange(200)))
            for _ in range(count)
        ]
        identity = {
            "producer_id": self.integer("producer_id", 64),
            "producer_epoch": self.integer("producer_epoch", 16),
            "base_sequence": self.integer("base_sequence", 32),
        }
        batch = build_batch(records, codec=self.rng.choice(list(Codec)), **identity)
        if not self.is_hostile():
            return batch
        damaged = mutated(self.rng, batch)
        if len(damaged) > 61 and self.rng.random() < 0.8:
            damaged = damaged[:8] + struct.pack(">i", len(damaged) - 12) + damaged[12:]
            damaged = damaged[:16] + b"\2" + damaged[17:]
            damaged = damaged[:17] + struct.pack(">I", crc32c(damaged[21:])) + damaged[21:]
        return damaged


def mutated(rng: random.Random, data: bytes) -> bytes:
    """`data` with a few pieces replaced, inserted, removed, or its end cut."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(data))
        end = min(len(data), start + rng.randint(0, 8))
        data = data[:start] + rng.randbytes(rng.randint(0, 8)) + data[end:]
    return data[: rng.randint(0, len(data))] if rng.random() < 0.2 else data
