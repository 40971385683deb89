"""Offsets that were committed in transactions which have not ended: by producer, and by what they are of.

The offset that is latest in the log counts. So one that is overtaken by a later one of the same partition, committed outside
a transaction or in one that ends first, is no longer to be applied; but until its transaction ends no one can say that the
partition is stable, which readers may ask for (`require_stable`).

Invariant: offsets of a transaction are seen with the marker of its commit, and never without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from echoless.protocol.state_records.group_keys import OffsetKey
from echoless.protocol.state_records.offset_value import OffsetValue

Place = tuple[str, int]
"""Topic and partition."""


class EndedOffsets(NamedTuple):
    """The outcome of the end of a transaction."""

    groups: set[str]
    applied: list[tuple[OffsetKey, OffsetValue]]
    """The offsets that count now."""
    dropped: list[tuple[OffsetKey, OffsetValue]]
    """All that are not kept in a transaction any more."""


class OffsetsInTransactions:
    """The offsets of all groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, OffsetValue | None]] = {}
        """None: overtaken by a later one. Each producer's are in the order of the log."""
        self._by_group: dict[str, dict[Place, dict[int, None]]] = {}
        """The producers with an offset of a partition, the latest in the log at the end."""

    def put(self, producer_id: int, key: OffsetKey, value: OffsetValue) -> OffsetValue | None:
        """Keep an offset, the latest of its partition. Return the one of the same transaction that it replaces."""
        of_producer = self._by_producer.setdefault(producer_id, {})
        replaced = of_producer.get(key)
        of_producer[key] = value
        producers = self._by_group.setdefault(key.group_id, {}).setdefault(_place(key), {})
        producers.pop(producer_id, None)
        producers[producer_id] = None
        return replaced

    def end(self, producer_id: int, *, is_commit: bool) -> EndedOffsets:
        """Remove what a transaction that ends has, and the earlier offsets of others that it overtakes."""
        ended = EndedOffsets(set(), [], [])
        for key, value in self._by_producer.pop(producer_id, {}).items():
            ended.groups.add(key.group_id)
            if value is not None:
                ended.dropped.append((key, value))
                if is_commit:
                    ended.applied.append((key, value))
                    ended.dropped.extend((key, one) for one in self._overtake(key, producer_id))
            self._leave(key, producer_id)
        return ended

    def _overtake(self, key: OffsetKey, until: int | None = None) -> Iterator[OffsetValue]:
        """Drop the values of a partition that come before that of the producer `until`; of None: all."""
        for producer_id in self._by_group.get(key.group_id, {}).get(_place(key), {}):
            if producer_id == until:
                return
            of_producer = self._by_producer[producer_id]
            value, of_producer[key] = of_producer[key], None
            if value is not None:
                yield value

    def supersede(self, key: OffsetKey) -> Iterator[OffsetValue]:
        """Yield the offsets that one outside of transactions overtakes; each is dropped."""
        return self._overtake(key)

    def remove(self, key: OffsetKey) -> Iterator[OffsetValue]:
        """Yield the offsets of a partition whose offset is removed: no transaction brings one back, and none is pending."""
        yield from self._overtake(key)
        for producer_id in list(self._by_group.get(key.group_id, {}).get(_place(key), {})):
            of_producer = self._by_producer[producer_id]
            del of_producer[key]
            if not of_producer:
                del self._by_producer[producer_id]
            self._leave(key, producer_id)

    def values(self, group_id: str, place: Place) -> list[OffsetValue]:
        """The offsets of a partition that may still count, the latest in the log at the end."""
        key = OffsetKey(group_id, *place)
        producers = self._by_group.get(group_id, {}).get(place, {})
        found = [self._by_producer[producer_id][key] for producer_id in producers]
        return [value for value in found if value is not None]

    def places(self, group_id: str) -> Collection[Place]:
        """The partitions of a group with an offset in a transaction that has not ended."""
        return self._by_group.get(group_id, {}).keys()

    def _leave(self, key: OffsetKey, producer_id: int) -> None:
        of_group = self._by_group[key.group_id]
        producers = of_group[_place(key)]
        del producers[producer_id]
        if not producers:
            del of_group[_place(key)]
        if not of_group:
            del self._by_group[key.group_id]


def _place(key: OffsetKey) -> Place:
    return key.topic, key.partition
