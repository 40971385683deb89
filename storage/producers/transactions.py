"""The transactions of a partition's producers, as far as their entries do not tell.

A producer that has taken part in a transaction has a last marker here, and while one is open its first offset. Producers
that never did are not in here, and cost nothing.

The marker keeps a late copy of itself from ending the next transaction (`protocol/marker_decision.py`), and the
coordinator epoch in it fences older coordinators. It is forgotten with the newest batch of its producer.

Invariant: open transactions, last markers, aborted ranges and the last stable offset are those of the batches in the log.

Called by `state.py`. Knows nothing of files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from echoless.protocol.control_records import EndMarker, MarkerType
from echoless.protocol.marker_decision import LastMarker
from echoless.protocol.record_batch import Buffer
from echoless.storage.producers.open_transactions import OpenTransactions
from echoless.storage.producers.order import ProducerOrder

_NONE: Final = -1
_NO_MARKER: Final = (_NONE, -1, -1, -1, -1)

_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class; see `protocol/known/__init__.py`."""

PRODUCER_ROW: Final = struct.Struct("<qqbiqqq")
"""producer_id | first offset, -1 without an open transaction | type, -1 without a marker | coordinator epoch | number | offset | timestamp"""
ENDED_ROW: Final = struct.Struct("<qq")
"""first offset | offset of the marker"""
assert PRODUCER_ROW.size == 45
assert ENDED_ROW.size == 16


class FrozenTransactions(NamedTuple):
    """The transactions of a partition at one moment, for any one thread."""

    last_markers: Mapping[int, LastMarker]
    """By producer id."""
    open: tuple[tuple[int, int], ...]
    """Producer id and first offset."""
    ended: tuple[tuple[int, int], ...]
    """First offset and marker's offset, of those that may hold readers back."""

    def producer_rows(self) -> Iterator[bytes]:
        """Yields a `PRODUCER_ROW` for each producer."""
        markers, first_offsets = self.last_markers, dict(self.open)
        for producer_id, marker in markers.items():
            yield PRODUCER_ROW.pack(producer_id, first_offsets.get(producer_id, _NONE), *marker)
        for producer_id, first in self.open:
            if producer_id not in markers:
                yield PRODUCER_ROW.pack(producer_id, first, *_NO_MARKER)

    def ended_rows(self) -> Iterator[bytes]:
        """Yields an `ENDED_ROW` for each transaction that ended and may hold readers back."""
        return (ENDED_ROW.pack(*one) for one in sorted(self.ended))


NO_TRANSACTIONS: Final = FrozenTransactions(MappingProxyType({}), (), ())


def read_rows(producers: Iterable[Buffer], ended: Iterable[Buffer]) -> FrozenTransactions:
    """Reads whole rows. Raises `ValueError` for one that no partition can have written."""
    markers, found = dict[int, LastMarker](), list[tuple[int, int]]()
    for block in producers:
        for producer_id, first, *marker in PRODUCER_ROW.iter_unpack(block):
            if producer_id < 0 or first < _NONE:
                raise ValueError(f"producer id {producer_id} with a transaction from {first}")
            if first != _NONE:
                found.append((producer_id, first))
            if marker[0] != _NONE:
                markers[producer_id] = LastMarker(MarkerType(marker[0]), *marker[1:])
    held = list[tuple[int, int]]()
    for block in ended:
        for first, last in ENDED_ROW.iter_unpack(block):
            if not 0 <= first < last:
                raise ValueError(f"a transaction from offset {first} to {last}")
            held.append((first, last))
    return FrozenTransactions(markers, tuple(found), tuple(held))


class ProducerTransactions:
    """The transactions of one partition's producers."""

    __slots__ = ("entries", "last_markers", "open")

    def __init__(self, window: int) -> None:
        self.open = OpenTransactions()
        self.entries = ProducerOrder(window)
        """The entries of producers with an open transaction, which neither expire nor are evicted."""
        self.last_markers: dict[int, LastMarker] = {}
        """By producer id."""

    def note_marker(self, producer_id: int, marker: EndMarker, offset: int, timestamp: int) -> None:
        """Keeps the marker as the producer's last one. One without a number leaves number and type as they are."""
        kind, number = marker.type, marker.number
        last = self.last_markers.get(producer_id)
        if last is not None and number < last.number:
            kind, number = last.type, last.number
        fields = (kind, marker.coordinator_epoch, number, offset, timestamp)
        self.last_markers[producer_id] = _new(LastMarker, fields)

    def freeze(self) -> FrozenTransactions:
        """Returns the present state, unaffected by later changes. Costs some 10 ns for each producer."""
        return FrozenTransactions(
            dict(self.last_markers), tuple(self.open.items()), tuple(self.open.ended())
        )

    def load(self, frozen: FrozenTransactions) -> None:
        """Replaces everything but the entries."""
        self.last_markers = dict(frozen.last_markers)
        self.open.load(frozen.open, frozen.ended)
