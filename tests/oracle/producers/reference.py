"""A model of one partition's de-duplication: by Kafka 3.9's rules, or with Echoless' differences.

Written from `docs/protocol/deduplication.md` and `docs/differences.md`, for clarity only: a flat list of
conditions, every batch remembered, nothing bounded. It shares no code with `protocol/dedup.py`, which it judges. `Rules` are the switches in which the two differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

SEQUENCES = 2**31

NONE = 0
OUT_OF_ORDER = 45
DUPLICATE = 46
OLD_EPOCH = 47
UNKNOWN_PRODUCER = 59
DECIDED = frozenset({NONE, OUT_OF_ORDER, DUPLICATE, OLD_EPOCH, UNKNOWN_PRODUCER})
"""The codes of the de-duplication decision; every other code comes from a check before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The differences between the brokers. The defaults are Kafka's."""

    window: int = 5
    rejects_virgin_gap: bool = False
    """An unknown id must start at 0 on a partition that never held a record."""
    rejects_unknown: bool = False
    """An unknown id must start at 0 on any partition."""
    proves_repeats: bool = False
    """A repeat older than the window is answered with 46."""
    keeps_window: bool = False
    """A restart keeps the whole window, not one batch per producer."""
    rebuilds_state: bool = False
    """A clean start without snapshot files reads the log, and does not forget every producer."""
    expires_by_arrival: bool = False
    """A producer with old records is not forgotten at a restart."""
    refuses_other_records: bool = False
    """A repeat of a batch in the window has its records too."""
    refuses_more: bool = False
    """Some requests get their own codes before the decision (`differences.REFUSALS`)."""


KAFKA = Rules()


def echoless_rules(*, window: int = 5, accepts_unknown: bool = False) -> Rules:
    """Every difference of the table, under the two settings that change answers."""
    return Rules(
        window=window,
        rejects_virgin_gap=not accepts_unknown,
        rejects_unknown=not accepts_unknown,
        proves_repeats=True,
        keeps_window=True,
        rebuilds_state=True,
        expires_by_arrival=True,
        refuses_other_records=True,
        refuses_more=True,
    )


class Facts(NamedTuple):
    """The decision's view of one batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    timestamp: int
    """The largest timestamp of its records, in ms."""
    records: bytes = b""
    """The bytes behind the header."""

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.record_count - 1) % SEQUENCES


class Remembered(NamedTuple):
    """One batch in a window. `timestamp` is None where the broker did not tell it (acks 0)."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int | None


@dataclass(slots=True)
class Entry:
    """One producer on one partition."""

    epoch: int
    run_start: int
    """The first sequence from which on no number is missing in this epoch."""
    window: list[Remembered]

    @property
    def last_sequence(self) -> int:
        return self.window[-1].last_sequence


class Verdict(NamedTuple):
    """`original` is set for a repeat inside the window; otherwise `error` 0 means: append."""

    error: int
    original: Remembered | None = None

    @property
    def appends(self) -> bool:
        return self.error == NONE and self.original is None

    def __str__(self) -> str:
        if self.original is not None:
            return f"repeat of offset {self.original.base_offset}"
        return "append" if self.appends else f"error {self.error}"


APPEND = Verdict(NONE)


@dataclass(slots=True)
class Partition:
    """The state of one partition under `rules`."""

    rules: Rules
    log_end_offset: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    stored: list[tuple[int, bytes]] = field(default_factory=list)
    """Base offset and the client's bytes of every appended batch."""
    records: dict[int, bytes] = field(default_factory=dict)
    """The records of every appended batch, by its base offset."""

    def decide(self, batch: Facts) -> Verdict:
        """Judges one valid batch; changes nothing."""
        if batch.producer_id < 0:
            return APPEND
        entry = self.entries.get(batch.producer_id)
        known_epoch = -1 if entry is None else entry.epoch
        if entry is not None and batch.producer_epoch == entry.epoch:
            for remembered in entry.window:
                if remembered[:2] == (batch.base_sequence, batch.last_sequence):
                    if self.rules.refuses_other_records and not self._holds(remembered, batch):
                        return Verdict(UNKNOWN_PRODUCER)
                    return Verdict(NONE, remembered)
        if batch.producer_epoch < known_epoch:
            return Verdict(OLD_EPOCH)
        if entry is None or (known_epoch == -1 and batch.producer_epoch != -1):
            return self._decide_unknown(batch)
        if batch.producer_epoch > known_epoch:
            return APPEND if batch.base_sequence == 0 else Verdict(OUT_OF_ORDER)
        return APPEND if known_epoch == -1 else self._decide_sequence(entry, batch)

    def _holds(self, remembered: Remembered, batch: Facts) -> bool:
        """Whether the stored batch has the same records."""
        return self.records[remembered.base_offset] == batch.records

    def _decide_unknown(self, batch: Facts) -> Verdict:
        if batch.base_sequence == 0:
            return APPEND
        if self.rules.rejects_virgin_gap and self.log_end_offset == 0:
            return Verdict(OUT_OF_ORDER)
        return Verdict(UNKNOWN_PRODUCER) if self.rules.rejects_unknown else APPEND

    def _decide_sequence(self, entry: Entry, batch: Facts) -> Verdict:
        first, last, newest = batch.base_sequence, batch.last_sequence, entry.last_sequence
        if first == (newest + 1) % SEQUENCES:
            return APPEND
        is_proven = entry.run_start <= first <= last <= newest and newest - last <= SEQUENCES // 2
        return Verdict(DUPLICATE if self.rules.proves_repeats and is_proven else OUT_OF_ORDER)

    def append(self, batch: Facts, records: bytes, timestamp: int | None) -> None:
        """Takes the batch in at the end; `timestamp` is what a repeat will be answered with."""
        base_offset = self.log_end_offset
        self.stored.append((base_offset, records))
        self.records[base_offset] = batch.records
        self.log_end_offset += batch.record_count
        if batch.producer_id < 0:
            return
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            entry = Entry(batch.producer_epoch, batch.base_sequence, [])
        elif batch.base_sequence != (entry.last_sequence + 1) % SEQUENCES:
            entry.run_start = batch.base_sequence
        if batch.last_sequence < entry.run_start:
            entry.run_start = 0  # it has wrapped: of the numbers before, nothing is proven
        remembered = Remembered(batch.base_sequence, batch.last_sequence, base_offset, timestamp)
        entry.window = [*entry.window, remembered][-self.rules.window :]
        self.entries[batch.producer_id] = entry

    def restart(self, now_ms: int, expiration_ms: int, *, lost_snapshots: bool) -> None:
        """The effect of a stop and a start on the producers."""
        if lost_snapshots and not self.rules.rebuilds_state:
            self.entries.clear()
        for producer_id, entry in list(self.entries.items()):
            newest = entry.window[-1]
            if not self.rules.keeps_window:
                entry.window = [newest]
            is_old = newest.timestamp is not None and now_ms - newest.timestamp >= expiration_ms
            if is_old and not self.rules.expires_by_arrival:
                del self.entries[producer_id]
