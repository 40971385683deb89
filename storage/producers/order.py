"""Producer id -> entry, ordered by last append, in two tiers.

The producers that appended last remain live objects, so that one producer appending repeatedly costs
two dict operations; the idle ones are packed at about 200 bytes each (window of 5). Every packed entry
is older than every live one, so together the tiers are one list in the order of last append, from
whose front producers are forgotten without a scan.

The order is that of the `put`s, whatever the clock says.

Invariant: an id is in one tier at most.
Invariant: no entry holds more than `window` batches.

Called by `state.py`, which decides when an entry is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from echoless.protocol.dedup import ProducerEntry
from echoless.protocol.record_batch import Buffer
from echoless.storage.producers.record import (
    WINDOW_MAX,
    decode_record,
    encode_record,
    read_append_ms,
    read_batch_count,
    record_size,
    trim_record,
)
from echoless.storage.producers.table import ProducerTable

LIVE_ENTRIES_MAX: Final = 128
"""Entries kept as objects; one with a full window takes 1.4 KB, so a partition takes 180 KB at most."""


class ProducerOrder:
    """Producers of one partition, the one idle for longest at the front."""

    def __init__(self, window: int) -> None:
        assert 1 <= window <= WINDOW_MAX, f"window {window} is not in 1..{WINDOW_MAX}"
        self._window = window
        self.live: OrderedDict[int, ProducerEntry] = OrderedDict()
        """The producers that appended last. Others only look up here; `get` knows the rest."""
        self._packed = ProducerTable(record_size(window))

    def __len__(self) -> int:
        return len(self.live) + len(self._packed)

    def get(self, producer_id: int) -> ProducerEntry | None:
        entry = self.live.get(producer_id)
        if entry is not None or not self._packed:
            return entry
        slot = self._packed.get(producer_id)
        return decode_record(slot) if slot is not None else None

    def put(self, producer_id: int, entry: ProducerEntry) -> None:
        """Stores the entry as the newest."""
        if len(entry.batches) > self._window:
            entry = replace(entry, batches=entry.batches[-self._window :])
        live = self.live
        if producer_id in live:
            live[producer_id] = entry
            live.move_to_end(producer_id)
            return
        if self._packed:
            self._packed.remove(producer_id)
        live[producer_id] = entry
        if len(live) > LIVE_ENTRIES_MAX:
            idle_id, idle = live.popitem(last=False)
            self._packed.append(idle_id, encode_record(idle))

    def clear(self, expected: int = 1) -> None:
        """Forgets everything and prepares for `expected` packed ids."""
        self.live.clear()
        self._packed.clear(expected)

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Yields every producer, oldest append first. The order must not change during the iteration."""
        for producer_id, slot in self._packed.items():
            yield producer_id, decode_record(slot)
        yield from self.live.items()

    def records(self) -> Iterator[tuple[int, Buffer]]:
        """Yields the same as `items`, in the packed form of `record.py`."""
        return _records(self._packed.items(), self.live.items())

    def freeze(self) -> Callable[[], Iterator[tuple[int, Buffer]]]:
        """Returns the present `records`, for any one thread, unaffected by later changes."""
        packed, live = self._packed.freeze(), list(self.live.items())
        return lambda: _records(packed.items(), live)

    def load_record(self, producer_id: int, record: Buffer) -> None:
        """Stores a record of at most `window` batches as the newest, while no entry is live."""
        assert not self.live
        self._packed.remove(producer_id)  # a peer may name it twice
        self._packed.append(producer_id, record)

    def resize_window(self, window: int) -> None:
        """Changes the window; a narrower one keeps the newest batches."""
        assert 1 <= window <= WINDOW_MAX, f"window {window} is not in 1..{WINDOW_MAX}"
        self._window = window
        self._packed.convert(record_size(window), lambda slot: trim_record(slot, window))
        for producer_id, entry in self.live.items():
            self.live[producer_id] = replace(entry, batches=entry.batches[-window:])

    def oldest(self) -> tuple[int, int] | None:
        """The producer idle for longest, and the time of its last append."""
        packed = self._packed.oldest()
        if packed is not None:
            return packed[0], read_append_ms(packed[1])
        for producer_id, entry in self.live.items():
            return producer_id, entry.last_append_ms
        return None

    def discard(self, producer_id: int) -> bool:
        """Removes the id; False if it was not known."""
        if self.live.pop(producer_id, None) is not None:
            return True
        return bool(self._packed) and self._packed.remove(producer_id)

    def take(self, producer_id: int) -> bytes:
        """Removes the id, which has to be known, and returns its record."""
        slot = self._packed.get(producer_id) if self._packed else None
        if slot is None:
            return encode_record(self.live.pop(producer_id))
        record = bytes(slot[: record_size(read_batch_count(slot))])
        self._packed.remove(producer_id)
        return record


def _records(
    packed: Iterable[tuple[int, memoryview]], live: Iterable[tuple[int, ProducerEntry]]
) -> Iterator[tuple[int, Buffer]]:
    for producer_id, slot in packed:
        yield producer_id, slot[: record_size(read_batch_count(slot))]
    for producer_id, entry in live:
        yield producer_id, encode_record(entry)
