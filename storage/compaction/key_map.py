"""The newest offset of each key in the dirty part of a log, in bounded memory.

A key of at most `DIGEST_BYTES` is kept as it is, a longer one as its BLAKE2 digest with a byte before it, so
that none is mistaken for the other. Two keys with one digest would lose a record: with 128 bits, a map of a
million keys meets that once in 10^26.

When the map is full the pass ends there, and the next one goes on.

Once it is filled, `NewestOffsets` says which records of a batch are newest by their offsets alone, so that those of the dirty
part are copied without their keys being read again.

Pure. Called by `cleaning.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

DIGEST_BYTES: Final = 16
BYTES_PER_KEY: Final = 192
"""An upper bound: 49 to 66 bytes for the key, 32 for the offset, and 32 to 105 in the table, the more the
nearer it is to its last growth (`tests/storage/compaction/test_key_map.py` measures it)."""


def short_key(key: bytes) -> bytes:
    """The key itself if it is short, otherwise its digest."""
    if len(key) <= DIGEST_BYTES:
        return key
    from hashlib import blake2b  # noqa: PLC0415 - it loads OpenSSL, and few logs are compacted

    return b"\x00" + blake2b(key, digest_size=DIGEST_BYTES).digest()


class KeyMap:
    """Newest offsets by short key."""

    __slots__ = ("_keys_max", "end_offset", "is_dense", "offsets")

    def __init__(self, bytes_max: int) -> None:
        self._keys_max = max(bytes_max // BYTES_PER_KEY, 1)
        self.offsets: dict[bytes, int] = {}
        """Filled by the reader of the records, in the order of their offsets."""
        self.end_offset = 0
        """Every record with a key from the dirty start up to here is in the map."""
        self.is_dense = True
        """Whether in each batch that was read, and has a record for each offset, these rise one by one."""

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self._keys_max


_MARKED_AT_ONCE: Final = 1024


class NewestOffsets:
    """Marks, a byte for each offset of the dirty part, of those that the map has as newest."""

    __slots__ = ("_marks", "_start")

    def __init__(self) -> None:
        self._start = 0
        self._marks = bytearray()

    def load(self, keys: KeyMap, start: int, bytes_max: int) -> Iterator[None]:
        """Sets the marks in steps; sets none if that would take more than `bytes_max`, or would not say all.

        `start`: the first offset of the batches whose keys are in the map.
        """
        size = keys.end_offset - start
        if not keys.is_dense or size > bytes_max:
            return
        marks, offsets = bytearray(size), iter(keys.offsets.values())
        while some := [*islice(offsets, _MARKED_AT_ONCE)]:
            if min(some) < start or max(some) >= keys.end_offset:
                return
            for offset in some:
                marks[offset - start] = 1
            yield
        self._start, self._marks = start, marks

    def between(self, offset: int, end: int) -> bytes | None:
        """The marks of these offsets; None if they are not known."""
        first = offset - self._start
        if first < 0 or end - self._start > len(self._marks):
            return None
        return bytes(self._marks[first : end - self._start])
