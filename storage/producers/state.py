"""The producers of one partition: producer id -> entry, ordered by last append.

Producers are forgotten when they have been idle for too long, or when there are too many of them. Of each that is
forgotten the newest batch is kept for a while (`forgotten.py`): `get` answers with it, and nothing else counts it.
Leased ids (`protocol/leases.py`) are kept for longer, and no bound evicts them. So they have an order
of their own, and expiry and eviction take from the front of an order without a scan.

Times are the data directory's own clock (`clock_checkpoint.py`). A crash can set it back by up to a
minute, so the order of times is not strict; the front is never skipped, so an entry may then expire
late, but never early. An expired entry that no sweep has removed yet still counts, as in Kafka.

Nor is a producer forgotten that has an open transaction: its entry is in an order that neither expiry nor eviction
looks at, until the marker (`transactions.py`).

Invariant: an id that was here and is below `lost_from` is known, or forgotten and kept.
Invariant: a producer with an open transaction is not forgotten.
Invariant: a leased id is not forgotten before `leased_expiration_ms` after its last append.

Called by the log. Decides nothing (`protocol/dedup.py` does), reads no clock, touches no file.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from echoless.protocol.bound_ids import issue_number
from echoless.protocol.dedup import WINDOW_DEFAULT, ProducerEntry
from echoless.protocol.leases import LEASED_ID_MIN, is_leased
from echoless.protocol.marker_decision import LastMarker
from echoless.protocol.producer_effect import ProducerEffect
from echoless.protocol.record_batch import BatchHeader, Buffer
from echoless.storage.producers.forgotten import ForgottenProducers
from echoless.storage.producers.open_transactions import ClosedTransaction, OpenTransactions
from echoless.storage.producers.order import ProducerOrder
from echoless.storage.producers.owners import Owners
from echoless.storage.producers.record import decode_record, read_append_ms, trim_record
from echoless.storage.producers.transactions import (
    NO_TRANSACTIONS,
    FrozenTransactions,
    ProducerTransactions,
)

NONE_LOST: Final = 2**63 - 1


class FrozenStates:
    """The producers at one moment, with the part of `ProducerStates` that a snapshot needs."""

    __slots__ = (
        *("_count", "_forgotten", "_orders"),
        *("_open", "forgotten_count", "lost_from", "transactions", "window"),
    )

    def __init__(
        self,
        window: int,
        count: int,
        orders: Sequence[Callable[[], Iterator[tuple[int, Buffer]]]],
        *,
        forgotten: Callable[[], Iterator[tuple[int, Buffer]]],
        forgotten_count: int,
        lost_from: int,
        transactions: FrozenTransactions,
    ) -> None:
        self.window = window
        self.lost_from = lost_from
        self.forgotten_count = forgotten_count
        self._forgotten = forgotten
        self.transactions = transactions
        self._open: dict[int, int] | None = None
        self._count = count
        self._orders = orders

    def __len__(self) -> int:
        return self._count

    def records(self) -> Iterator[tuple[int, Buffer]]:
        """Yields every producer with its packed record, oldest append first."""
        return _merged(*(records() for records in self._orders))

    def forgotten_records(self) -> Iterator[tuple[int, Buffer]]:
        """Yields every forgotten producer that is kept, with its packed record, forgotten first first."""
        return self._forgotten()

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Yields every producer, oldest append first."""
        return ((producer_id, decode_record(record)) for producer_id, record in self.records())

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction; None without one."""
        if self._open is None:
            self._open = dict(self.transactions.open)
        return self._open.get(producer_id)

    def last_marker(self, producer_id: int) -> LastMarker | None:
        """The last marker of the producer, as far as it was known."""
        return self.transactions.last_markers.get(producer_id)

    def page(self, after: int, limit: int) -> list[tuple[int, ProducerEntry]]:
        """The producers with the lowest ids above `after`, by id: an order that appends do not change."""
        later = (one for one in self.records() if one[0] > after)
        found = heapq.nsmallest(limit, later, key=itemgetter(0))
        return [(producer_id, decode_record(record)) for producer_id, record in found]


def _merged(*orders: Iterator[tuple[int, Buffer]]) -> Iterator[tuple[int, Buffer]]:
    """Merges the orders by the time of the last append."""
    return heapq.merge(*orders, key=lambda item: read_append_ms(item[1]))


class ProducerStates:
    """The producers of one partition."""

    def __init__(
        self,
        window: int = WINDOW_DEFAULT,
        expiration_ms: int = 86_400_000,
        producers_max: int = 0,
        leased_expiration_ms: int = 0,
        *,
        is_fair: bool = False,
        forgotten_max: int = 0,
    ) -> None:
        """`window`: batches kept per producer; `producers_max` 0: any number of producers.

        `forgotten_max`: forgotten producers of which the newest batch is kept.

        `is_fair`: the owner with most producers loses one first (`protocol/bound_ids.py`).

        A leased id is kept for the longer one of the two times.
        """
        self.window = window
        self.expiration_ms = expiration_ms
        self.producers_max = producers_max
        """Leased ids are not counted."""
        self.leased_expiration_ms = leased_expiration_ms
        self.evicted_total = 0
        """Producers forgotten because of `producers_max`, since this object was created."""
        self.expired_total = 0
        """Producers forgotten because they were idle for too long."""
        self.lost_from = NONE_LOST
        """The lowest number of a producer id that was here, and of which nothing is kept (`issue_number`)."""
        self._plain = ProducerOrder(window)
        self._leased = ProducerOrder(window)
        self._forgotten = ForgottenProducers(forgotten_max)
        self._owners = Owners() if is_fair and producers_max else None
        self.has_transactions = False
        """Whether a producer of this partition has ever had a transaction, as far as it is known."""
        self._transactions: ProducerTransactions | None = None
        """Made when it is needed: most partitions have no transactions."""

    def __len__(self) -> int:
        return sum(map(len, self._orders))

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The entry of the id (>= 0), None if nothing is known of it; of a forgotten one with the newest batch alone."""
        transactions = self._transactions
        if transactions is not None:
            live = transactions.entries.live
            entry = live.get(producer_id) or self._plain.live.get(producer_id)
            if entry is not None:  # an id is in one order at most
                return entry
        is_plain = producer_id < LEASED_ID_MIN and transactions is None
        order = self._plain if is_plain else self._order_of(producer_id)
        return (
            order.live.get(producer_id)
            or order.get(producer_id)
            or self._forgotten.get(producer_id)
        )

    @property
    def forgotten_count(self) -> int:
        """The number of forgotten producers of which the newest batch is kept."""
        return len(self._forgotten)

    def put(self, producer_id: int, entry: ProducerEntry) -> None:
        """Stores the entry of a producer without an open transaction as the newest; may forget the one idle for longest."""
        order = self._plain if producer_id < LEASED_ID_MIN else self._order_of(producer_id)
        live = order.live
        # As `order.put`, without its calls: with the look in `get`, 3 % of a produce.
        if producer_id in live and len(entry.batches) <= self.window:
            live[producer_id] = entry
            live.move_to_end(producer_id)
        else:
            order.put(producer_id, entry)
            if self._forgotten:
                self._forgotten.remove(producer_id)
        if self.producers_max:
            if self._owners is not None and order is self._plain:
                self._owners.put(producer_id)
            self._evict()

    def put_transactional(
        self, entry: ProducerEntry, header: BatchHeader, base_offset: int, effect: ProducerEffect
    ) -> ClosedTransaction | None:
        """Stores the entry after a transactional batch or marker at `base_offset`; returns the transaction that it aborted."""
        transactions = self._transactions
        if transactions is None:
            transactions = self._transactions = ProducerTransactions(self.window)
            self.has_transactions = True
        producer_id, first_offsets = header.producer_id, transactions.open.first_offsets
        was_open = producer_id in first_offsets
        aborted = transactions.open.note(header, base_offset, effect)
        if effect.end is not None:
            offset = base_offset + header.last_offset_delta
            transactions.note_marker(producer_id, effect.end, offset, header.max_timestamp)
        if producer_id in first_offsets:
            if not was_open:
                self._leave_order(producer_id)
            transactions.entries.put(producer_id, entry)
        else:
            if was_open:
                transactions.entries.discard(producer_id)
            self.put(producer_id, entry)
        return aborted

    def _leave_order(self, producer_id: int) -> None:
        """Takes a producer out of the order that it was in without a transaction."""
        order = self._leased if is_leased(producer_id) else self._plain
        if order.discard(producer_id):
            if order is self._plain and self._owners is not None:
                self._owners.forget(producer_id)
        elif self._forgotten:
            self._forgotten.remove(producer_id)

    def note_committed(self, high_watermark: int) -> None:
        """Notes that the high watermark has moved: transactions that ended below it hold no one back."""
        if self._transactions is not None:
            self._transactions.open.note_committed(high_watermark)

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction; None without one."""
        transactions = self._transactions
        return None if transactions is None else transactions.open.first_offsets.get(producer_id)

    def last_marker(self, producer_id: int) -> LastMarker | None:
        """The last marker of the producer, as far as it is known."""
        transactions = self._transactions
        return None if transactions is None else transactions.last_markers.get(producer_id)

    @property
    def open_transaction_count(self) -> int:
        """The number of open transactions."""
        transactions = self._transactions
        return 0 if transactions is None else len(transactions.open)

    @property
    def open_transactions(self) -> OpenTransactions | None:
        """The transactions that are open, or ended; None if there never was one."""
        return None if self._transactions is None else self._transactions.open

    def expire(self, now_ms: int, count_max: int | None = None) -> int:
        """Forgets producers that have been idle for too long, oldest first; returns how many.

        Costs about 2 us for each; `count_max` bounds one sweep.
        """
        leased_ms = max(self.expiration_ms, self.leased_expiration_ms)
        expired = self._expire(self._plain, now_ms - self.expiration_ms, count_max)
        left = None if count_max is None else count_max - expired
        expired += self._expire(self._leased, now_ms - leased_ms, left)
        self.expired_total += expired
        return expired

    @property
    def next_expiry_ms(self) -> int | None:
        """The time at which the producer idle for longest expires; None without producers."""
        leased_ms = max(self.expiration_ms, self.leased_expiration_ms)
        times = [
            oldest[1] + expiration_ms
            for order, expiration_ms in (
                (self._plain, self.expiration_ms),
                (self._leased, leased_ms),
            )
            if (oldest := order.oldest()) is not None
        ]
        return min(times, default=None)

    def clear(self) -> None:
        self.lost_from = NONE_LOST
        self._plain.clear()
        self._leased.clear()
        self._forgotten.clear()
        self._transactions, self.has_transactions = None, False
        if self._owners is not None:
            self._owners.clear()

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Yields every producer, oldest append first; the states must not change during the iteration.

        Leased ones, and those in a transaction, are merged in by the time of their last append.
        """
        orders = self._orders
        if len(orders) == 1:
            return self._plain.items()
        return heapq.merge(
            *(one.items() for one in orders), key=lambda item: item[1].last_append_ms
        )

    def records(self) -> Iterator[tuple[int, Buffer]]:
        """Yields the same as `items`, in the packed form of `record.py`, for a snapshot."""
        orders = self._orders
        if len(orders) == 1:
            return self._plain.records()
        return _merged(*(one.records() for one in orders))

    def forgotten_records(self) -> Iterator[tuple[int, Buffer]]:
        """Yields every forgotten producer that is kept, with its packed record, forgotten first first."""
        return self._forgotten.records()

    def freeze(self) -> FrozenStates:
        """Returns the present states, for any one thread, unaffected by later changes."""
        return FrozenStates(
            self.window,
            len(self),
            [one.freeze() for one in self._orders],
            forgotten=self._forgotten.freeze(),
            forgotten_count=len(self._forgotten),
            lost_from=self.lost_from,
            transactions=self.transactions,
        )

    @property
    def transactions(self) -> FrozenTransactions:
        """The transactions at this moment, for a snapshot."""
        return NO_TRANSACTIONS if self._transactions is None else self._transactions.freeze()

    def load(
        self,
        records: Iterable[tuple[int, Buffer]],
        count: int,
        window: int,
        *,
        forgotten: int = 0,
        lost_from: int = NONE_LOST,
        transactions: FrozenTransactions = NO_TRANSACTIONS,
    ) -> None:
        """Replaces everything by `count` records, oldest append first, written with a window of `window`.

        The first `forgotten` of them are those of forgotten producers.
        """
        self.lost_from = lost_from
        self._forgotten.clear()
        self._plain.clear(expected=count)
        self._leased.clear()
        if self._owners is not None:
            self._owners.clear()
        self._transactions, self.has_transactions = None, False
        if transactions is not NO_TRANSACTIONS:
            self._transactions = ProducerTransactions(self.window)
            self._transactions.load(transactions)
            self.has_transactions = True
        left = iter(records)
        for producer_id, record in islice(left, forgotten):
            self._keep_forgotten(producer_id, record)
        for producer_id, record in left:
            self._forgotten.remove(producer_id)  # a peer may name it twice
            trimmed = record if window <= self.window else trim_record(record, self.window)
            order = self._order_of(producer_id)
            order.load_record(producer_id, trimmed)
            if self._owners is not None and order is self._plain:
                self._owners.put(producer_id)
        if self.producers_max:
            self._evict()

    def reconfigure(
        self,
        *,
        window: int | None = None,
        expiration_ms: int | None = None,
        producers_max: int | None = None,
        leased_expiration_ms: int | None = None,
        forgotten_max: int | None = None,
    ) -> None:
        """Changes the given settings. A narrower window keeps the newest batches; a lower bound evicts."""
        if expiration_ms is not None:
            self.expiration_ms = expiration_ms
        if leased_expiration_ms is not None:
            self.leased_expiration_ms = leased_expiration_ms
        if window is not None and window != self.window:
            self.window = window
            self._plain.resize_window(window)
            self._leased.resize_window(window)
            if self._transactions is not None:
                self._transactions.entries.resize_window(window)
        if producers_max is not None:
            self.producers_max = producers_max
        if forgotten_max is not None:
            self._forgotten.count_max = forgotten_max
            self._lose_surplus()
        if self.producers_max:
            self._evict()

    @property
    def _orders(self) -> list[ProducerOrder]:
        """The orders that are in use, `_plain` first."""
        orders = [self._plain]
        if self._leased:
            orders.append(self._leased)
        if self._transactions is not None and self._transactions.entries:
            orders.append(self._transactions.entries)
        return orders

    def _order_of(self, producer_id: int) -> ProducerOrder:
        transactions = self._transactions
        if transactions is not None and producer_id in transactions.open.first_offsets:
            return transactions.entries
        return self._leased if is_leased(producer_id) else self._plain

    def _evict(self) -> None:
        plain = self._plain
        while len(plain) > self.producers_max and (oldest := plain.oldest()):
            evicted = oldest[0]
            if self._owners is not None:
                evicted = self._owners.next_to_go(evicted)
                self._owners.forget(evicted)
            self._forget(plain, evicted)
            self.evicted_total += 1

    def _expire(self, order: ProducerOrder, horizon_ms: int, count_max: int | None) -> int:
        """Forgets from the front the producers idle since `horizon_ms` or longer; returns how many."""
        owners = self._owners if order is self._plain else None
        expired = 0
        while expired != count_max:
            oldest = order.oldest()
            if oldest is None or oldest[1] > horizon_ms:
                break
            self._forget(order, oldest[0])
            if owners is not None:
                owners.forget(oldest[0])
            expired += 1
        return expired

    def _forget(self, order: ProducerOrder, producer_id: int) -> None:
        self._keep_forgotten(producer_id, order.take(producer_id))

    def _keep_forgotten(self, producer_id: int, record: Buffer) -> None:
        self._forgotten.add(producer_id, record)
        self._lose_surplus()

    def _lose_surplus(self) -> None:
        while (lost := self._forgotten.pop_surplus()) is not None:
            self.lose_from(issue_number(lost))
            if self._transactions is not None:
                self._transactions.last_markers.pop(lost, None)

    def lose_from(self, number: int) -> None:
        """Notes that producer ids from this number on may have been here and are not known any more."""
        self.lost_from = min(self.lost_from, number)
