"""The records that every client program writes, and the digest over them: the reference.

The definition is in tests/compatibility/README.md; the programs in Java, Go and JavaScript follow
it too. Knows nothing of any client.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import NamedTuple

BASE_TIMESTAMP_MS = 1_700_000_000_000
_MASK = 0xFFFFFFFF
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_LITTLE_U32 = struct.Struct("<I")

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. `timestamp` is in milliseconds; `number` is its index in the seed's series."""

    number: int
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]

    def canonical(self) -> bytes:
        """The bytes that the digest covers."""
        return canonical(self.timestamp, self.key, self.value, self.headers)


class _Draws:
    """xorshift32 from a mixed start, so that record i needs no record before it."""

    def __init__(self, seed: int, number: int) -> None:
        x = (seed + 0x9E3779B9 * (number + 1)) & _MASK
        x ^= x >> 16
        x = x * 0x7FEB352D & _MASK
        x ^= x >> 15
        x = x * 0x846CA68B & _MASK
        self._state = (x ^ (x >> 16)) or 1

    def draw(self) -> int:
        x = self._state
        x ^= x << 13 & _MASK
        x ^= x >> 17
        self._state = x = x ^ (x << 5 & _MASK)
        return x

    def below(self, bound: int) -> int:
        return self.draw() % bound

    def fill(self, length: int) -> bytes:
        blocks = (_LITTLE_U32.pack(self.draw()) * 4 for _ in range(0, length, 16))
        return b"".join(blocks)[:length]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The records of one seed, for a topic with that many partitions."""

    seed: int
    partitions: int
    base_timestamp: int = BASE_TIMESTAMP_MS
    null_headers: bool = True
    """Whether the client can write a header value of null; it writes an empty one otherwise."""

    def record(self, number: int) -> Record:
        """The record of that number."""
        draws = _Draws(self.seed, number)
        timestamp = self.base_timestamp + 7 * number + draws.below(1000)
        key = _key(draws)
        value = _value(draws, without=b"" if key is None else None)
        without = None if self.null_headers else b""
        headers: list[Header] = [("n", b"%d" % number)]
        headers += [("hé", _header_value(draws, without)) for _ in range(draws.below(4))]
        return Record(number, number % self.partitions, timestamp, key, value, headers)

    def digests(self, numbers: range) -> dict[str, str]:
        """By partition, as a decimal number: the digest of those records."""
        digests = [PartitionDigest(0) for _ in range(self.partitions)]
        for number in numbers:
            record = self.record(number)
            digest = digests[record.partition]
            digest.add(digest.next_offset, record.canonical())
        return {str(partition): digest.hexdigest() for partition, digest in enumerate(digests)}


def _key(draws: _Draws) -> bytes | None:
    case = draws.below(8)
    if case < 2:
        return (None, b"")[case]
    return b"key-%d" % draws.below(5000)


def _value(draws: _Draws, without: bytes | None) -> bytes | None:
    case = draws.below(16)
    if case < 2:
        return (without, b"")[case]
    return draws.fill(draws.below(4000 if case == 2 else 160))


def _header_value(draws: _Draws, without: bytes | None) -> bytes | None:
    case = draws.below(4)
    if case < 2:
        return (without, b"")[case]
    return draws.fill(draws.below(24))


def canonical(
    timestamp: int, key: bytes | None, value: bytes | None, headers: list[Header]
) -> bytes:
    """The bytes that the digest covers, of a record read from anywhere."""
    parts = [_I64.pack(timestamp), _field(key), _field(value), _I32.pack(len(headers))]
    for name, content in headers:
        parts += (_field(name.encode()), _field(content))
    return b"".join(parts)


def _field(content: bytes | None) -> bytes:
    return _I32.pack(-1) if content is None else _I32.pack(len(content)) + content


class PartitionDigest:
    """A reader's report on one partition, built record by record in offset order."""

    def __init__(self, first_offset: int) -> None:
        self.count = self.gaps = 0
        self.first_offset = self.next_offset = first_offset
        self._sha = hashlib.sha256()

    def add(self, offset: int, canonical_bytes: bytes) -> None:
        """Takes the next record; an offset other than the next one counts as a gap."""
        self.gaps += offset != self.next_offset
        self.next_offset = offset + 1
        self.count += 1
        self._sha.update(canonical_bytes)

    def report(self) -> dict[str, int | str]:
        """The fields of the summary."""
        return {
            "count": self.count,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
            "gaps": self.gaps,
            "digest": self.hexdigest(),
        }

    def hexdigest(self) -> str:
        return self._sha.hexdigest()
