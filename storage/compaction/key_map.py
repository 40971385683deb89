"""The newest offset of each key in the dirty part of a log, in bounded memory.

A key of at most `DIGEST_BYTES` is kept as it is, a longer one as its BLAKE2 digest with a byte before it, so
that none is mistaken for the other. Two keys with one digest would lose a record: with 128 bits, a map of a
million keys meets that once in 10^26.

When the map is full the pass ends there, and the next one goes on.

Pure. Called by `cleaning.py`.
"""

from __future__ import annotations

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

    __slots__ = ("_keys_max", "end_offset", "offsets")

    def __init__(self, bytes_max: int) -> None:
        self._keys_max = max(bytes_max // BYTES_PER_KEY, 1)
        self.offsets: dict[bytes, int] = {}
        """Filled by the reader of the records, in the order of their offsets."""
        self.end_offset = 0
        """Every record with a key from the dirty start up to here is in the map."""

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self._keys_max
