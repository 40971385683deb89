"""`__transaction_state` and the logs of partitions: transactions are decided once, whole, and never without their coordinator.

The invariants of `transactions-spec` that no client can see by itself: numbered as there.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from echoless.protocol.control_records import MarkerType, read_marker
from echoless.protocol.records import iterate_records
from echoless.protocol.state_records.transaction_records import (
    TransactionStatus,
    TransactionValue,
    read_transaction_key,
    read_transaction_value,
)
from tests.simulation.checkers.logs import Batch, read_batches
from tests.simulation.observations import Append, Spot
from tests.simulation.transactions.seen import Given
from tests.support.raw_batches import TRANSACTIONAL
from tests.transactions.history.events import Outcome, Place, Seen, Stored, Transaction

UNKNOWN: Final = "unknown"
DEAD: Final = "dead"
_E, _O, _PC, _PA, _CC, _CA = TransactionStatus
LEGAL: Final[Mapping[str, frozenset[str]]] = {
    UNKNOWN: frozenset({_E.name}),
    _E.name: frozenset({_E.name, _O.name, _PA.name, DEAD}),
    _O.name: frozenset({_O.name, _PC.name, _PA.name}),
    _PC.name: frozenset({_CC.name}),
    _PA.name: frozenset({_CA.name}),
    _CC.name: frozenset({_E.name, _O.name, _PA.name, DEAD}),
    _CA.name: frozenset({_E.name, _O.name, _PA.name, DEAD}),
    DEAD: frozenset({_E.name}),
}
"""The transitions of an id, by what is stored of it."""
Key = tuple[int, int]
"""Producer id and number of a transaction."""


@dataclass(slots=True)
class Known:
    """One transaction, as its coordinator has stored it."""

    epoch: int
    """The epoch of its batches."""
    partitions: set[tuple[str, int]] = field(default_factory=set)
    is_commit: bool | None = None
    """None: it was not decided."""


@functools.lru_cache(maxsize=1000)
def records_of(data: bytes) -> list[tuple[str, TransactionValue | None]]:
    """Ids and values in the batches of `__transaction_state`; the same bytes are on every replica's disk."""
    found: list[tuple[str, TransactionValue | None]] = []
    for batch in read_batches(data):
        for record in iterate_records(memoryview(batch.data)):
            assert record.key is not None
            transactional_id = read_transaction_key(record.key)
            assert isinstance(transactional_id, str)
            value = record.value
            stored = None if value is None else read_transaction_value(value)
            found.append((transactional_id, stored))
    return found


class StateLog:
    """Replays `__transaction_state`, and judges each step."""

    def __init__(self) -> None:
        self.transactions: dict[Key, Known] = {}
        self.transitions: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self._last: dict[str, TransactionValue | None] = {}
        self._owner: dict[int, str] = {}

    def faults(self, batches: Iterable[Batch]) -> Iterator[str]:
        """Replays the log of one partition."""
        for batch in batches:
            for transactional_id, value in records_of(batch.data):
                yield from self._step(transactional_id, value)

    def _step(self, name: str, value: TransactionValue | None) -> Iterator[str]:
        before = self._last.get(name)
        is_known = name in self._last
        then = before.status.name if before is not None else (DEAD if is_known else UNKNOWN)
        now = DEAD if value is None else value.status.name
        self.transitions[f"{then} -> {now}"] += 1
        if now not in LEGAL[then]:
            yield f"1: {name!r} goes from {then} to {now}"
        self._last[name] = value
        if value is None:
            return
        owner = self._owner.setdefault(value.producer_id, name)
        if owner != name:
            yield f"10: producer id {value.producer_id} is that of {owner!r} and of {name!r}"
        if before is not None:
            yield from self._compare(name, before, value)
        self._note(value)

    def _compare(
        self, name: str, before: TransactionValue, value: TransactionValue
    ) -> Iterator[str]:
        if value.producer_id == before.producer_id and value.producer_epoch < before.producer_epoch:
            yield f"10: the epoch of {name!r} falls from {before.producer_epoch} to {value.producer_epoch}"
        begins = value.status is _O and before.status is not _O
        is_empty_abort = value.status is _PA and before.status is not _O
        wanted = before.number + (begins or is_empty_abort)
        if value.number != wanted:
            yield f"1: transaction {value.number} of {name!r} follows {before.number} in {value.status.name}"
        if before.status.is_prepared and value.ended != before.ended:
            yield f"1: transaction {value.number} of {name!r} was decided twice: {before.ended}, {value.ended}"

    def _note(self, value: TransactionValue) -> None:
        key = value.producer_id, value.number
        if value.status is _O:
            known = self.transactions.setdefault(key, Known(value.producer_epoch))
            known.partitions |= {(one.topic, one.partition) for one in value.partitions}
        elif value.status.is_prepared:
            known = self.transactions.setdefault(key, Known(value.producer_epoch))
            known.is_commit = value.status is _PC
            if value.ended is not None:
                self.ends[value.ended.end.name] += 1


class DataLog:
    """The log of one partition, against what the coordinators have stored."""

    def __init__(self, spot: Spot, transactions: Mapping[Key, Known]) -> None:
        self._spot = spot
        self._transactions = transactions
        self._open: dict[int, list[Batch]] = defaultdict(list)
        self._marked: set[Key] = set()
        self.is_interleaved = False
        """Whether batches of two transactions lie between each other."""
        self.numbers: dict[tuple[int, int], int] = {}
        """The number of the transaction, by leader epoch and offset of each of its batches."""

    def faults(self, batches: Iterable[Batch]) -> Iterator[str]:
        """Judges every batch and every marker."""
        for batch in batches:
            if batch.is_control:
                yield from self._marker(batch)
            elif batch.attributes & TRANSACTIONAL:
                self._open[batch.producer_id].append(batch)
                self.is_interleaved |= sum(map(bool, self._open.values())) > 1

    def _marker(self, batch: Batch) -> Iterator[str]:
        marker = read_marker(batch.data)
        where = f"{self._spot} at {batch.base_offset}"
        if marker is None:
            yield f"{where}: a control batch ends nothing"
            return
        key = batch.producer_id, marker.number
        known = self._transactions.get(key)
        if known is None or known.is_commit is None:
            yield f"2: {where}: a marker of {key}, which no coordinator has decided"
            return
        if known.is_commit is not (marker.type is MarkerType.COMMIT):
            yield f"2: {where}: {marker.type.name} of {key}, which was decided otherwise"
        if key in self._marked:
            yield f"2: {where}: a second marker of {key}"
        self._marked.add(key)
        for data in self._open.pop(batch.producer_id, []):
            self.numbers[data.leader_epoch, data.base_offset] = marker.number
            if tuple(self._spot) not in known.partitions:
                yield f"6: {self._spot} at {data.base_offset}: the partition is not in transaction {key}"
            if data.producer_epoch != known.epoch:
                yield (
                    f"5: {self._spot} at {data.base_offset}: epoch {data.producer_epoch} in transaction {key} of epoch "
                    f"{known.epoch}"
                )


def added_before_written(
    appends: Sequence[Append], numbers: Mapping[Spot, Mapping[tuple[int, int], int]]
) -> Iterator[str]:
    """6: no disk takes a batch before some disk has taken the record that adds its partition to the transaction."""
    added = _added_at(appends)
    by_directory = {f"{spot.topic}-{spot.partition}": spot for spot in numbers}
    for append in appends:
        spot = by_directory.get(append.directory)
        for batch in () if spot is None else read_batches(append.data):
            number = numbers[spot].get((batch.leader_epoch, batch.base_offset))
            if number is None or batch.is_control:
                continue
            at = added.get((batch.producer_id, number, *spot))
            if at is None or at > append.at:
                yield f"6: {spot} at {batch.base_offset} was written at {append.at:.3f}, and added at {at}"


def _added_at(appends: Iterable[Append]) -> dict[tuple[int, int, str, int], float]:
    """The time at which a partition was added, by producer id, number, topic and partition."""
    added: dict[tuple[int, int, str, int], float] = {}
    for append in appends:
        if append.directory.startswith("__transaction_state-"):
            for _, value in records_of(append.data):
                for one in () if value is None else value.partitions:
                    key = (value.producer_id, value.number, one.topic, one.partition)
                    added.setdefault(key, append.at)
    return added


def fenced_stay_out(given: Sequence[Given], transactions: Iterable[Transaction]) -> Iterator[str]:
    """5: once a new instance has its identity, no earlier one begins to commit."""
    began = {one.process: one for one in reversed(given) if one.is_new}
    successors: dict[str, list[Given]] = defaultdict(list)
    for one in given:
        if one.is_new:
            successors[one.transactional_id].append(one)
    for one in transactions:
        if one.outcome is not Outcome.OK or one.committing is None:
            continue
        own = began[one.process]
        for other in successors[one.name]:
            if (
                other.process != one.process
                and own.at < other.asked_at
                and other.at < one.committing
            ):
                yield (
                    f"5: {one.process} commits at {one.committing:.3f}, and {other.process} has taken over at {other.at:.3f}"
                )


def identities_are_unique(given: Sequence[Given]) -> Iterator[str]:
    """10: no two instances have one identity, and no producer id has two transactional ids."""
    owners: dict[int, str] = {}
    holders: dict[tuple[int, int], str] = {}
    for one in given:
        owner = owners.setdefault(one.identity.producer_id, one.transactional_id)
        if owner != one.transactional_id:
            yield f"10: producer id {one.identity.producer_id} is given to {owner!r} and {one.transactional_id!r}"
        holder = holders.setdefault(one.identity, one.process)
        if holder != one.process:
            yield f"10: {one.identity} is given to {holder} and to {one.process}"


def everything_is_read(
    readers: Mapping[str, Sequence[Seen]], logs: Mapping[Place, Sequence[Stored]]
) -> Iterator[str]:
    """A reader of all records gets each one once, in order, whatever becomes of its transaction."""
    for reader, seen in readers.items():
        for place, stored in logs.items():
            wanted = [(one.offset, one.value) for one in stored]
            got = [(one.offset, one.value) for one in seen if one.place == place]
            if got != wanted:
                yield f"{reader} of {place} got {set(got) ^ set(wanted) or 'them in another order'}"


def stable_end(batches: Iterable[Batch], high_watermark: int) -> tuple[dict[int, int], int]:
    """7: the open transactions (producer id and first offset), and the last stable offset that follow from a log."""
    opened: dict[int, int] = {}
    unreplicated: list[int] = []
    for batch in batches:
        if batch.is_control:
            first = opened.pop(batch.producer_id, None)
            if first is not None and batch.base_offset >= high_watermark:
                unreplicated.append(first)
        elif batch.attributes & TRANSACTIONAL:
            opened.setdefault(batch.producer_id, batch.base_offset)
    return opened, min([high_watermark, *opened.values(), *unreplicated])
