"""The packed table: producer id -> a record of bounded size, oldest append first.

Records are in slots of equal size inside chunks of 1024 slots; a chunk never moves, so growing
costs one new chunk and copies nothing. The order is a ring of int32 links through slot 0, which
has no record: after it comes the oldest, before it the newest.

`freeze` is cheap: a chunk is copied when it is first written afterwards.

Invariant: the ring passes every slot of the index exactly once.

Called by `order.py`. Knows only how long a record can be.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from echoless.protocol.record_batch import Buffer
from echoless.storage.producers.index import NO_SLOT, ProducerIndex

_CHUNK_BITS: Final = 10
CHUNK_SLOTS: Final = 1 << _CHUNK_BITS
_SLOT_MASK: Final = CHUNK_SLOTS - 1
_RING: Final = NO_SLOT


class ProducerTable:
    """Records of up to `slot_size` bytes by producer id. All methods but `convert` and `items` are O(1)."""

    __slots__ = ("_chunks", "_frozen", "_index", "_newer", "_older", "_slot_size")

    def __init__(self, slot_size: int, hash_of: Callable[[bytes], int] = hash) -> None:
        self._slot_size = slot_size
        self._index = ProducerIndex(hash_of)
        self.clear()

    def clear(self, expected: int = 1) -> None:
        """Removes everything, frees the memory and prepares for `expected` ids."""
        self._index.clear(expected)
        self._chunks: list[memoryview] = []
        self._frozen: set[int] = set()
        """Numbers of the chunks shared with a frozen table."""
        self._newer = array("i", [_RING])
        self._older = array("i", [_RING])

    def __len__(self) -> int:
        return self._index.count

    def get(self, producer_id: int) -> memoryview | None:
        """The id's slot, valid until the next change; it begins with the record."""
        slot = self._index.find(producer_id)
        return self._slot(slot) if slot else None

    def append(self, producer_id: int, record: Buffer) -> None:
        """Stores a record for an id that has none, as the newest."""
        slot = self._index.add(producer_id)
        if slot == len(self._newer):
            self._add_slot(slot)
        newest = self._older[_RING]
        self._newer[newest] = self._older[_RING] = slot
        self._older[slot], self._newer[slot] = newest, _RING
        start = (slot & _SLOT_MASK) * self._slot_size
        number = slot >> _CHUNK_BITS
        if number in self._frozen:
            self._frozen.discard(number)
            self._chunks[number] = memoryview(bytearray(self._chunks[number]))
        self._chunks[number][start : start + len(record)] = record

    def remove(self, producer_id: int) -> bool:
        """Removes the id; False if it was not known."""
        slot = self._index.remove(producer_id)
        if not slot:
            return False
        older, newer = self._older[slot], self._newer[slot]
        self._newer[older], self._older[newer] = newer, older
        if not len(self._index) and len(self._chunks) > 1:
            self.clear()
        return True

    def oldest(self) -> tuple[int, memoryview] | None:
        """The id that has been idle for longest, and its slot."""
        slot = self._newer[_RING]
        return (self._index.producer_ids[slot], self._slot(slot)) if slot else None

    def items(self) -> Iterator[tuple[int, memoryview]]:
        """Yields every id with its slot, oldest first. The table must not change during the iteration."""
        producer_ids, newer = self._index.producer_ids, self._newer
        slot = newer[_RING]
        while slot:
            yield producer_ids[slot], self._slot(slot)
            slot = newer[slot]

    def freeze(self) -> FrozenTable:
        """Returns the present table, unaffected by later changes. Costs some 10 ns for each id."""
        self._frozen = set(range(len(self._chunks)))
        return FrozenTable(
            list(self._chunks), self._newer[:], self._index.producer_ids[:], self._slot_size
        )

    def convert(self, slot_size: int, transform: Callable[[memoryview], Buffer]) -> None:
        """Gives every slot the new size, one chunk at a time; ids and order stay."""
        old_size, self._slot_size = self._slot_size, slot_size
        self._frozen.clear()
        for number, old in enumerate(self._chunks):
            new = self._new_chunk()
            for slot in range(CHUNK_SLOTS):
                record = transform(old[slot * old_size : (slot + 1) * old_size])
                new[slot * slot_size : slot * slot_size + len(record)] = record
            self._chunks[number] = new

    def _slot(self, slot: int) -> memoryview:
        start = (slot & _SLOT_MASK) * self._slot_size
        return self._chunks[slot >> _CHUNK_BITS][start : start + self._slot_size]

    def _add_slot(self, slot: int) -> None:
        self._newer.append(_RING)
        self._older.append(_RING)
        if slot >> _CHUNK_BITS == len(self._chunks):
            self._chunks.append(self._new_chunk())

    def _new_chunk(self) -> memoryview:
        return memoryview(bytearray(CHUNK_SLOTS * self._slot_size))


class FrozenTable:
    """A table at one moment; any one thread may read it."""

    __slots__ = ("_chunks", "_newer", "_producer_ids", "_slot_size")

    def __init__(
        self, chunks: list[memoryview], newer: array[int], producer_ids: array[int], slot_size: int
    ) -> None:
        self._chunks = chunks
        self._newer = newer
        self._producer_ids = producer_ids
        self._slot_size = slot_size

    def items(self) -> Iterator[tuple[int, memoryview]]:
        """Yields every id with its slot, oldest first."""
        size = self._slot_size
        slot = self._newer[_RING]
        while slot:
            start = (slot & _SLOT_MASK) * size
            chunk = self._chunks[slot >> _CHUNK_BITS]
            yield self._producer_ids[slot], chunk[start : start + size]
            slot = self._newer[slot]
