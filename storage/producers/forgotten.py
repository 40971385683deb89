"""Forgotten producers: the newest batch of those that expired or were evicted, packed.

A producer that comes back after a long pause goes on with its next sequence number, and a late repeat of what it had
sent is still a repeat. Of its entry one batch is enough to tell both from a gap; about 90 bytes for each producer. At most
`count_max` are kept, those that were forgotten last.

Called by `state.py`, which decides when an entry is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from echoless.protocol.dedup import ProducerEntry
from echoless.protocol.record_batch import Buffer
from echoless.storage.producers.record import (
    decode_record,
    read_batch_count,
    record_size,
    trim_record,
)
from echoless.storage.producers.table import ProducerTable

_WINDOW: Final = 1


class ForgottenProducers:
    """Producer id -> entry with one batch, the one that was forgotten first at the front."""

    __slots__ = ("_table", "count_max")

    def __init__(self, count_max: int) -> None:
        """`count_max` 0: none is kept."""
        self.count_max = count_max
        self._table: ProducerTable | None = None
        """Made when it is needed: most partitions forget no one."""

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The entry of a forgotten producer."""
        slot = None if self._table is None else self._table.get(producer_id)
        return None if slot is None else decode_record(slot)

    def add(self, producer_id: int, record: Buffer) -> None:
        """Keeps the newest batch of a producer's packed record; `pop_surplus` may follow."""
        if self._table is None:
            self._table = ProducerTable(record_size(_WINDOW))
        self._table.remove(producer_id)  # a peer may name it twice
        self._table.append(producer_id, trim_record(record, _WINDOW))

    def remove(self, producer_id: int) -> None:
        """Drops an id that is known again, if it is here."""
        if self._table is not None:
            self._table.remove(producer_id)

    def pop_surplus(self) -> int | None:
        """Drops the id that was forgotten first, if there are too many; returns it."""
        if self._table is None or len(self._table) <= self.count_max:
            return None
        oldest = self._table.oldest()
        assert oldest is not None
        self._table.remove(oldest[0])
        return oldest[0]

    def clear(self) -> None:
        """Drops everything."""
        self._table = None

    def records(self) -> Iterator[tuple[int, Buffer]]:
        """Yields every id with its packed record."""
        return _records(() if self._table is None else self._table.items())

    def freeze(self) -> Callable[[], Iterator[tuple[int, Buffer]]]:
        """Returns the present `records`, for any one thread, unaffected by later changes."""
        if self._table is None:
            return lambda: iter(())
        frozen = self._table.freeze()
        return lambda: _records(frozen.items())


def _records(slots: Iterable[tuple[int, memoryview]]) -> Iterator[tuple[int, Buffer]]:
    for producer_id, slot in slots:
        yield producer_id, slot[: record_size(read_batch_count(slot))]
