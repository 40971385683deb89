"""Histories of a broker that keeps every promise, and of ones that break one.

The broker is a model: logs in memory, markers that come late and one by one, readers up to the last stable offset.
Producer 0 copies the first partition of `t` within its transactions; the others write.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.transactions.history.events import (
    History,
    Outcome,
    Place,
    Seen,
    Sent,
    Stored,
    Transaction,
)

INPUT: Final[Place] = ("t", 0)
COPIES: Final[Place] = ("copies", 0)
WRITTEN: Final[tuple[Place, ...]] = (INPUT, ("t", 1), ("t", 2))
PRODUCERS: Final = 4
READERS: Final = 2
ACTIONS: Final = 8
"""Kinds of actions: the first number of a step."""
COPIER: Final = 0
_AT_A_TIME: Final = 3

Step = tuple[int, int, int, int]
"""The kind of an action, who acts, where, and how; all modulo what there is."""


class Flaw(enum.Enum):
    """One broken rule of the broker, or of its readers."""

    READS_TO_THE_END = "the last stable offset is the high watermark"
    SHOWS_ABORTED = "an aborted range is left out of an answer"
    FORGETS_ONE_PARTITION = "one partition gets no marker"
    COMMITS_ALL_BUT_ONE = "a commit aborts one partition"
    ABORTS_ALL_BUT_ONE = "an abort commits one partition"
    STORES_TWICE = "a retry is stored again"
    LOSES = "an acknowledged record is cut off"
    JOINS_THE_NEXT = "a late record of an aborted transaction joins the next one"
    COMMITS_OFFSETS_OF_ABORTED = "an abort keeps the offsets of its transaction"
    FORGETS_OFFSETS = "a commit forgets the offsets of its transaction"
    SKIPS = "a reader misses a record"
    READS_AGAIN = "a reader goes back"
    MIXES_UP = "a reader gets another record at an offset"
    REORDERS = "two records of a producer change their places"


@dataclass(slots=True)
class _Entry:
    value: str
    number: int
    """The transaction that its marker decides over."""


@dataclass(slots=True)
class Model:
    """The broker with its clients. `took_effect` says whether the flaw has shown itself in what clients see."""

    flaw: Flaw | None = None
    took_effect: bool = False
    transactions: list[Transaction] = field(default_factory=list)
    _logs: dict[Place, list[_Entry | None]] = field(default_factory=dict)
    _open: dict[int, int] = field(default_factory=dict)
    _markers: dict[int, list[tuple[Place, int, bool]]] = field(default_factory=dict)
    """By producer: markers on their way."""
    _decided: dict[tuple[Place, int], bool] = field(default_factory=dict)
    """By place and transaction: whether its marker there commits it."""
    _positions: dict[tuple[str, Place], int] = field(default_factory=dict)
    _readers: dict[str, list[Seen]] = field(default_factory=dict)
    _committed_input: int = 0
    _late: Sent | None = None
    _joined: int = -1
    """The transaction that a late record has joined."""
    _clock: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._logs = {place: [] for place in (*WRITTEN, COPIES)}

    def run(self, steps: Iterable[Step]) -> History:
        """The history of these steps, with everything ended after the last."""
        for step in steps:
            self._act(*step)
        for producer in list(self._open):
            self._end(producer, 2 * producer)
        self._deliver_all()
        for reader in range(READERS):
            for place in self._logs:
                self._poll(f"reader-{reader}", place, len(self._logs[place]))
        log = {place: self._stored(place) for place in self._logs}
        return History(
            transactions=self.transactions,
            readers=self._readers,
            final={
                place: [(row.offset, row.value) for row in rows if row.is_committed]
                for place, rows in log.items()
            },
            log=log,
            inputs={INPUT: self._committed_input},
        )

    def _act(self, kind: int, who: int, where: int, how: int) -> None:
        producer, place = who % PRODUCERS, WRITTEN[where % len(WRITTEN)]
        match kind % ACTIONS:
            case 0 | 1 | 2 if producer != COPIER:
                self._send(producer, place, how)
            case 0 | 1 | 2:
                self._copy(how)
            case 3 if producer in self._open:
                self._end(producer, how)
            case 4:
                self._deliver(producer)
            case 5 if producer in self._open and producer != COPIER:
                seen = self.transactions[self._open[producer]].seen
                seen += self._take(f"producer-{producer}", place, 1 + how % _AT_A_TIME)
            case _:
                self._poll(f"reader-{who % READERS}", [*WRITTEN, COPIES][where % 4], _AT_A_TIME)

    def _now(self) -> float:
        return float(next(self._clock))

    def _is_now(self, flaw: Flaw) -> bool:
        """Whether the flaw shows itself here: once in a history."""
        return self.flaw is flaw and not self.took_effect

    def _begin(self, producer: int) -> int:
        if producer not in self._open:
            while self._markers.get(producer):
                self._deliver(producer)
            self._open[producer] = len(self.transactions)
            process = f"producer-{producer}"
            self.transactions.append(Transaction(process=process, name=process, began=self._now()))
            if self._late is not None and producer != COPIER:
                place = self._late.place
                self._logs[place].append(_Entry(self._late.value, self._open[producer]))
                self._late, self._joined = None, self._open[producer]
        return self._open[producer]

    def _send(self, producer: int, place: Place, how: int, source: str | None = None) -> None:
        number = self._begin(producer)
        one, log = self.transactions[number], self._logs[place]
        value = f"{number}.{len(one.sent)}"
        offset = None if how % 5 == 0 else len(log)
        log.append(_Entry(value, number))
        if self._is_now(Flaw.STORES_TWICE) and offset is not None:
            log.append(_Entry(value, number))
            self.took_effect = True
        before = one.sent[-1] if one.sent else None
        if self._is_now(Flaw.REORDERS) and before is not None and before.offset is None:
            last = log[-2] if len(log) > 1 else None
            if last is not None and last.value == before.value:
                log[-1], log[-2], offset = last, log[-1], None
                self.took_effect = True
        one.sent.append(Sent(place, value, offset, source))

    def _copy(self, how: int) -> None:
        self._begin(COPIER)
        seen = self._take("producer-0", INPUT, 1)
        self.transactions[self._open[COPIER]].seen += seen
        for one in seen:
            self._send(COPIER, COPIES, how, one.value)

    def _end(self, producer: int, how: int) -> None:
        number = self._open.pop(producer)
        one, is_commit = self.transactions[number], how % 3 != 1
        if is_commit or how % 2:
            one.committing = self._now()
        one.outcome = Outcome.OK if is_commit else Outcome.FAILED
        if how % 4 == 3 and one.committing is not None:
            one.outcome = Outcome.UNKNOWN
        places = [
            place
            for place, log in self._logs.items()
            if any(entry is not None and entry.number == number for entry in log)
        ]
        self.took_effect |= is_commit and number == self._joined
        markers = [(place, number, is_commit) for place in places]
        self._markers[producer] = self._spoil(markers, one, is_commit)
        if producer == COPIER:
            self._end_copy(is_commit)

    def _spoil(
        self, markers: list[tuple[Place, int, bool]], one: Transaction, is_commit: bool
    ) -> list[tuple[Place, int, bool]]:
        """The markers, by the flaw."""
        flaw, is_known = self.flaw, one.outcome is not Outcome.UNKNOWN
        if self.took_effect or not markers or not is_known:
            return markers
        place, number, _ = markers[-1]
        if flaw is Flaw.FORGETS_ONE_PARTITION:
            self.took_effect = True
            return markers[:-1]
        if flaw is Flaw.LOSES and is_commit:
            self.took_effect = True
            self._logs[place] = [
                None if entry is not None and entry.number == number else entry
                for entry in self._logs[place]
            ]
        if flaw is Flaw.JOINS_THE_NEXT and not is_commit:
            self._late = Sent(place, f"{number}.late")
            one.sent.append(self._late)
        wanted = {Flaw.COMMITS_ALL_BUT_ONE: True, Flaw.ABORTS_ALL_BUT_ONE: False}
        if wanted.get(flaw) is is_commit if flaw is not None else False:
            self.took_effect = True
            return [*markers[:-1], (place, number, not is_commit)]
        return markers

    def _end_copy(self, is_commit: bool) -> None:
        position = self._positions.get(("producer-0", INPUT), 0)
        moved = any(
            entry is not None and self._decided.get((INPUT, entry.number))
            for entry in self._logs[INPUT][self._committed_input : position]
        )
        keeps = is_commit
        if moved and self._is_now(
            Flaw.FORGETS_OFFSETS if is_commit else Flaw.COMMITS_OFFSETS_OF_ABORTED
        ):
            self.took_effect, keeps = True, not is_commit
        if keeps:
            self._committed_input = position
        else:
            self._positions["producer-0", INPUT] = self._committed_input

    def _deliver(self, producer: int) -> None:
        if markers := self._markers.get(producer):
            place, number, is_commit = markers.pop(0)
            self._decided[place, number] = is_commit
            self._logs[place].append(None)

    def _deliver_all(self) -> None:
        for producer, markers in self._markers.items():
            while markers:
                self._deliver(producer)

    def _poll(self, reader: str, place: Place, at_most: int) -> None:
        rows = self._take(reader, place, at_most)
        if len(rows) > 1:
            rows = self._misread(rows)
        self._readers.setdefault(reader, []).extend(rows)

    def _misread(self, rows: list[Seen]) -> list[Seen]:
        if self.flaw not in {Flaw.SKIPS, Flaw.READS_AGAIN, Flaw.MIXES_UP} or self.took_effect:
            return rows
        self.took_effect = True
        match self.flaw:
            case Flaw.SKIPS:
                return rows[1:]
            case Flaw.READS_AGAIN:
                return [*rows, rows[0]]
            case _:
                return [rows[0]._replace(value=rows[1].value), *rows[1:]]

    def _take(self, reader: str, place: Place, at_most: int) -> list[Seen]:
        """Committed records from the reader's position, below the last stable offset."""
        log, found = self._logs[place], list[Seen]()
        for offset in range(self._positions.get((reader, place), 0), len(log)):
            entry = log[offset]
            if entry is None or len(found) == at_most:
                if entry is None:
                    self._positions[reader, place] = offset + 1
                    continue
                break
            decided = self._decided.get((place, entry.number))
            if decided is None and not self._is_read_open(entry):
                break
            self._positions[reader, place] = offset + 1
            if decided is False and self._is_now(Flaw.SHOWS_ABORTED):
                self.took_effect = decided = True
            if decided is not False:
                found.append(Seen(place, offset, entry.value, self._now()))
        return found

    def _is_read_open(self, entry: _Entry) -> bool:
        """Whether a record without a marker is read, which is seen while nobody has called for its commit."""
        is_read = (
            self._is_now(Flaw.READS_TO_THE_END)
            and self.transactions[entry.number].committing is None
        )
        self.took_effect |= is_read
        return is_read

    def _stored(self, place: Place) -> list[Stored]:
        return [
            Stored(offset, entry.value, self._decided.get((place, entry.number)))
            for offset, entry in enumerate(self._logs[place])
            if entry is not None
        ]
