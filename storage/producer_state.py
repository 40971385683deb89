"""What one partition knows of its producers: producer id -> entry, ordered by last append.

Two tiers. The producers that appended last stay live objects, so that one producer appending
again and again costs two dict operations; the idle rest is packed at about 200 bytes each (window
of 5). Every packed entry was appended to before every live one, so together the tiers are one
list in the order of last append, and expiry and eviction take from its front without a scan.

Order is the order of the `put`s, whatever the clock says. Where the wall clock steps back, a young
time can stand behind an old one; the front is never skipped, so an entry may then expire late, by
as much as the clock went back, and never early. An entry past its time that no sweep has removed
yet still counts, as in Kafka.

Invariant: an id is in one tier at most.
Invariant: no entry holds more than `window` batches.

Called by the log. Decides nothing (`protocol/dedup.py` does), reads no clock, touches no file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from protocol.dedup import WINDOW_DEFAULT, ProducerEntry
from protocol.record_batch import Buffer
from storage.producer_record import (
    WINDOW_MAX,
    decode_record,
    encode_record,
    read_append_ms,
    read_batch_count,
    record_size,
    trim_record,
)
from storage.producer_table import ProducerTable

LIVE_ENTRIES_MAX: Final = 128
"""Entries kept as objects; a full window makes 1.4 KB, so a partition spends 180 KB at most."""


class ProducerStates:
    """The producers of one partition."""

    def __init__(
        self, window: int = WINDOW_DEFAULT, expiration_ms: int = 86_400_000, producers_max: int = 0
    ) -> None:
        """`window`: batches kept per producer; `producers_max` 0: any number of producers."""
        assert 1 <= window <= WINDOW_MAX, f"window {window} is not in 1..{WINDOW_MAX}"
        self.window = window
        self.expiration_ms = expiration_ms
        self.producers_max = producers_max
        self.evicted_total = 0
        """Producers forgotten because `producers_max` was reached, since this object was made."""
        self.expired_total = 0
        """Producers forgotten because they did not append for `expiration_ms`."""
        self._live: OrderedDict[int, ProducerEntry] = OrderedDict()
        self._packed = ProducerTable(record_size(window))

    def __len__(self) -> int:
        return len(self._live) + len(self._packed)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The entry of the id (>= 0), None where it is not known."""
        entry = self._live.get(producer_id)
        if entry is not None or not self._packed:
            return entry
        slot = self._packed.get(producer_id)
        return decode_record(slot) if slot is not None else None

    def put(self, producer_id: int, entry: ProducerEntry) -> None:
        """Keeps the entry as the newest; may forget the least recently appended producer."""
        if len(entry.batches) > self.window:
            entry = replace(entry, batches=entry.batches[-self.window :])
        live = self._live
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
        if self.producers_max:
            self._evict()

    def expire(self, now_ms: int, count_max: int | None = None) -> int:
        """Forgets those that did not append for `expiration_ms`, oldest first; returns how many.

        Costs about 2 us for each; `count_max` bounds one sweep.
        """
        expired = 0
        horizon_ms = now_ms - self.expiration_ms
        while expired != count_max:
            oldest = self._oldest()
            if oldest is None or oldest[1] > horizon_ms:
                break
            self._forget(oldest[0])
            expired += 1
        self.expired_total += expired
        return expired

    def clear(self) -> None:
        self._live.clear()
        self._packed.clear()

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Every producer, oldest append first. Do not change the states meanwhile."""
        for producer_id, slot in self._packed.items():
            yield producer_id, decode_record(slot)
        yield from self._live.items()

    def records(self) -> Iterator[tuple[int, Buffer]]:
        """As `items`, in the packed form of `producer_record.py`: what a snapshot writes."""
        for producer_id, slot in self._packed.items():
            yield producer_id, slot[: record_size(read_batch_count(slot))]
        for producer_id, entry in self._live.items():
            yield producer_id, encode_record(entry)

    def load(self, records: Iterable[tuple[int, Buffer]], count: int, window: int) -> None:
        """Replaces everything by `count` records, oldest append first, kept where `window` applied."""
        self._live.clear()
        self._packed.clear(expected=count)
        packed = self._packed
        for producer_id, record in records:
            packed.remove(producer_id)  # nobody promised that a peer names it only once
            trimmed = record if window <= self.window else trim_record(record, self.window)
            packed.append(producer_id, trimmed)
        if self.producers_max:
            self._evict()

    def reconfigure(
        self,
        *,
        window: int | None = None,
        expiration_ms: int | None = None,
        producers_max: int | None = None,
    ) -> None:
        """Changes what is given. A narrower window keeps the newest batches; a lower bound evicts."""
        if expiration_ms is not None:
            self.expiration_ms = expiration_ms
        if window is not None and window != self.window:
            self._resize_window(window)
        if producers_max is not None:
            self.producers_max = producers_max
        if self.producers_max:
            self._evict()

    def _resize_window(self, window: int) -> None:
        assert 1 <= window <= WINDOW_MAX, f"window {window} is not in 1..{WINDOW_MAX}"
        self.window = window
        self._packed.convert(record_size(window), lambda slot: trim_record(slot, window))
        for producer_id, entry in self._live.items():
            self._live[producer_id] = replace(entry, batches=entry.batches[-window:])

    def _evict(self) -> None:
        while len(self) > self.producers_max and (oldest := self._oldest()):
            self._forget(oldest[0])
            self.evicted_total += 1

    def _oldest(self) -> tuple[int, int] | None:
        """The producer idle for longest, and when it last appended."""
        packed = self._packed.oldest()
        if packed is not None:
            return packed[0], read_append_ms(packed[1])
        for producer_id, entry in self._live.items():
            return producer_id, entry.last_append_ms
        return None

    def _forget(self, producer_id: int) -> None:
        if not self._packed.remove(producer_id):
            del self._live[producer_id]
