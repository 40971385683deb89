"""Producer id -> slot number, in about 24 bytes per id: linear hashing with chains in flat arrays.

A dict would take some 100 bytes per id (its table and two boxed integers) and stop the broker for
a long moment each time it doubles. Here the table grows by one bucket with every id added: the
next bucket in turn is split in two, so no step ever moves more than one chain. Ids are hashed as
bytes, because Python keys that hash per process: no client can choose ids that share a bucket.

Slots are numbered from 1; 0 is "no slot". Slots of removed ids are reused first.

Invariant: with `low` = the largest power of two <= bucket count, an id's bucket is its hash modulo
`2 * low` if that bucket exists already, and modulo `low` if not.

Called by `table.py`. Knows nothing of what a slot holds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

NO_SLOT: Final = 0


class ProducerIndex:
    """The slots of the ids of one partition. Ids are >= 0."""

    __slots__ = ("_chain", "_free", "_hash_of", "_heads", "_low", "count", "producer_ids")

    def __init__(self, hash_of: Callable[[bytes], int] = hash) -> None:
        self._hash_of = hash_of
        self.clear()

    def clear(self, expected: int = 1) -> None:
        """Removes all ids; with buckets for `expected` ids, none is split until there are more."""
        self.producer_ids = array("q", [-1])
        """Slot -> producer id; meaningless for a free slot."""
        self._chain = array("i", [NO_SLOT])
        """Slot -> next slot of the same bucket, or next free slot."""
        self._heads = array("i", [NO_SLOT]) * max(expected, 1)
        """Bucket -> first slot of its chain."""
        self._low = 1 << (len(self._heads).bit_length() - 1)
        self._free = NO_SLOT
        self.count = 0
        """Number of ids; the same as `len`, without a call."""

    def __len__(self) -> int:
        return self.count

    def find(self, producer_id: int) -> int:
        """The id's slot, or `NO_SLOT`."""
        slot = self._heads[self._bucket(producer_id)]
        producer_ids = self.producer_ids
        while slot and producer_ids[slot] != producer_id:
            slot = self._chain[slot]
        return slot

    def add(self, producer_id: int) -> int:
        """Assigns a slot to an id that has none yet."""
        slot = self._take_slot(producer_id)
        bucket = self._bucket(producer_id)
        self._chain[slot] = self._heads[bucket]
        self._heads[bucket] = slot
        self.count += 1
        if self.count > len(self._heads):
            self._split_next_bucket()
        return slot

    def remove(self, producer_id: int) -> int:
        """Removes the id; returns the slot that it had, or `NO_SLOT`."""
        bucket = self._bucket(producer_id)
        chain = self._chain
        before, slot = NO_SLOT, self._heads[bucket]
        while slot and self.producer_ids[slot] != producer_id:
            before, slot = slot, chain[slot]
        if not slot:
            return NO_SLOT
        if before:
            chain[before] = chain[slot]
        else:
            self._heads[bucket] = chain[slot]
        chain[slot], self._free = self._free, slot
        self.count -= 1
        return slot

    def _bucket(self, producer_id: int) -> int:
        low = self._low
        bucket = self._hash_of(producer_id.to_bytes(8)) & (2 * low - 1)
        return bucket if bucket < len(self._heads) else bucket - low

    def _take_slot(self, producer_id: int) -> int:
        slot = self._free
        if slot:
            self._free = self._chain[slot]
            self.producer_ids[slot] = producer_id
            return slot
        self.producer_ids.append(producer_id)
        self._chain.append(NO_SLOT)
        return len(self._chain) - 1

    def _split_next_bucket(self) -> None:
        heads, chain, low = self._heads, self._chain, self._low
        bucket, new_bucket = len(heads) - low, len(heads)
        slot, heads[bucket] = heads[bucket], NO_SLOT
        heads.append(NO_SLOT)
        while slot:
            following = chain[slot]
            target = (
                new_bucket if self._hash_of(self.producer_ids[slot].to_bytes(8)) & low else bucket
            )
            chain[slot], heads[target] = heads[target], slot
            slot = following
        if len(heads) == 2 * low:
            self._low *= 2
