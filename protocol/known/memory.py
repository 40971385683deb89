"""The memory of bytes that a connection has sent, with what they mean.

Equal bytes mean the same again, so nothing in it ever becomes wrong, and losing it costs time only. Each connection has a
memory of its own (`Peer.seen`): what one client sends neither fills nor empties that of another, and goes with its connection.

Invariant: at most `ENTRIES_MAX` entries and `BYTES_MAX` bytes of keys, over all tables of a memory together.
"""

from __future__ import annotations

import uuid
from collections.abc import Hashable
from typing import Any, Final, TypeVar

ENTRIES_MAX: Final = 128
BYTES_MAX: Final = 16 * 1024
KEY_BYTES_MAX: Final = 400
"""Longer bytes are not remembered."""
_Key = TypeVar("_Key", bound=Hashable)
_Meaning = TypeVar("_Meaning")

ProduceHead = tuple[str | None, int, int, str, int]
"""Transactional id, acks, timeout in ms, topic, and the number of partitions."""
FetchBody = tuple[
    tuple[int, int, int, int, int], str | uuid.UUID, int, int, int, int, tuple[Any, ...]
]
"""The fields before the topics, the topic, those of its only row without the offset, and the fields after the topics."""
NativeHead = tuple[str, int, int, int]
"""Topic, partition, acks, and timeout in ms."""


class SeenBytes:
    """The memory of one connection: a table for each quick way that looks bytes up.

    The quick ways look in the tables themselves; only `note` adds to them.
    """

    __slots__ = ("_bytes", "_entries", "fetches", "native_produces", "produces")

    def __init__(self) -> None:
        self.produces: dict[bytes, ProduceHead] = {}
        self.fetches: dict[tuple[int, bytes], FetchBody] = {}
        self.native_produces: dict[bytes, NativeHead] = {}
        self._entries = 0
        self._bytes = 0

    def note(
        self, table: dict[_Key, _Meaning], key: _Key, key_bytes: int, meaning: _Meaning
    ) -> None:
        """Remembers what a key of so many bytes means, in one of the tables.

        Forgets everything first if it is full: a client that changes its requests is known again after one of each.
        """
        if key_bytes > KEY_BYTES_MAX or key in table:
            return
        if self._entries == ENTRIES_MAX or self._bytes + key_bytes > BYTES_MAX:
            self._forget()
        table[key] = meaning
        self._entries += 1
        self._bytes += key_bytes

    def _forget(self) -> None:
        tables: tuple[dict[Any, Any], ...] = (self.produces, self.fetches, self.native_produces)
        for table in tables:
            table.clear()
        self._entries = self._bytes = 0
