"""The promises of transactions, judged from a history. Pure.

A transaction of unknown outcome counts as committed if any of its records is visible at the end or was read, and as
aborted if none is: all or nothing is demanded of it in either case.
"""

from __future__ import annotations

import enum
import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tests.transactions.history.cycles import (
    FORBIDDEN,
    Cycle,
    Edge,
    Graph,
    GraphBuilder,
    cycles,
)
from tests.transactions.history.events import History, Outcome, Place, Seen, Sent, Transaction


class Anomaly(enum.Enum):
    """A broken promise."""

    INCONSISTENT_OFFSET = "two values at one offset"
    DUPLICATE = "one value at two offsets"
    INVENTED = "a value that nobody sent"
    ABORTED_READ = "a value of an aborted transaction was read (G1a)"
    PRECOMMITTED_READ = "a value was read before its transaction called for its commit"
    TORN = "part of a transaction is visible, part is not"
    LOST = "a committed or once visible value cannot be read"
    NONMONOTONIC_POLL = "a reader went back"
    SKIP = "a reader passed over a visible value"
    NONMONOTONIC_SEND = "values of one producer lie in another order than that of its calls"
    CYCLE = "a cycle of reads (G1c)"
    PROCESSED_TWICE = "an input is visible in two outputs"
    SKIPPED_INPUT = "an input below the committed offset has no output"
    UNCOMMITTED_INPUT = "an input has an output, and its offset was not committed"
    WRONG_MARKER = "a marker contradicts the outcome of its transaction"
    UNSTABLE_END = "a transaction is open at the end"
    MISREAD_LOG = "readers of committed records and the log disagree"


@dataclass(slots=True)
class Verdict:
    """Broken promises, each in words, and the cycles that are legal."""

    broken: list[tuple[Anomaly, str]] = field(default_factory=list)
    legal_cycles: list[Cycle] = field(default_factory=list)

    @property
    def anomalies(self) -> set[Anomaly]:
        return {anomaly for anomaly, _ in self.broken}

    def __str__(self) -> str:
        return "\n".join(f"{anomaly.name}: {words}" for anomaly, words in self.broken) or "kept"


def check(history: History) -> Verdict:
    """Judges a history, every promise."""
    checker = _Checker(history)
    verdict = Verdict(list(checker.broken()))
    for cycle in cycles(checker.graph()):
        if cycle.kind == FORBIDDEN:
            verdict.broken.append((Anomaly.CYCLE, checker.name_cycle(cycle)))
        else:
            verdict.legal_cycles.append(cycle)
    return verdict


class _Checker:
    def __init__(self, history: History) -> None:
        self.history = history
        self.final = {value: place for place, rows in history.final.items() for _, value in rows}
        self.writer: dict[str, int] = {}
        self.sent: dict[str, Sent] = {}
        for number, one in enumerate(history.transactions):
            for sent in one.sent:
                assert sent.value not in self.writer, f"{sent.value} was sent twice by the test"
                self.writer[sent.value], self.sent[sent.value] = number, sent

    @cached_property
    def reads(self) -> list[tuple[str, Seen]]:
        """Every read with its reader; a transaction is a reader itself, as an aborted one is read again."""
        own = [
            (f"transaction {number}", seen)
            for number, one in enumerate(self.history.transactions)
            for seen in one.seen
        ]
        return own + [(name, seen) for name, rows in self.history.readers.items() for seen in rows]

    @cached_property
    def known(self) -> list[tuple[Place, int, str]]:
        """Every place, offset and value that anyone knows of, once."""
        rows = [(sent.place, sent.offset, value) for value, sent in self.sent.items()]
        found = {row: None for row in rows if row[1] is not None}
        found |= {(seen.place, seen.offset, seen.value): None for _, seen in self.reads}
        for place, final in self.history.final.items():
            found |= dict.fromkeys((place, *row) for row in final)
        for place, stored in (self.history.log or {}).items():
            found |= dict.fromkeys((place, row.offset, row.value) for row in stored)
        return list(found)  # type: ignore[arg-type]

    @cached_property
    def offset_of(self) -> dict[str, int]:
        return {value: offset for _, offset, value in self.known}

    @cached_property
    def committed(self) -> set[int]:
        """Transactions that committed: those that know it, and unknown ones of which anything was seen."""
        seen = {self.writer[seen.value] for _, seen in self.reads if seen.value in self.writer}
        seen |= {self.writer[value] for value in self.final if value in self.writer}
        outcomes = [one.outcome for one in self.history.transactions]
        return {
            number
            for number, outcome in enumerate(outcomes)
            if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and number in seen)
        }

    def broken(self) -> Iterator[tuple[Anomaly, str]]:
        yield from self._places()
        yield from self._uncommitted_reads()
        yield from self._whole()
        yield from self._polls()
        yield from self._sends()
        yield from self._copies()
        yield from self._log()

    def _places(self) -> Iterator[tuple[Anomaly, str]]:
        values = defaultdict[tuple[Place, int], set[str]](set)
        offsets = defaultdict[str, set[tuple[Place, int]]](set)
        for place, offset, value in self.known:
            values[place, offset].add(value)
            offsets[value].add((place, offset))
        for spot, several in values.items():
            if len(several) > 1:
                yield Anomaly.INCONSISTENT_OFFSET, f"{spot}: {sorted(several)}"
        for value, spots in offsets.items():
            if len(spots) > 1:
                yield Anomaly.DUPLICATE, f"{value}: {sorted(spots)}"
            if value not in self.writer:
                yield Anomaly.INVENTED, f"{value}: {sorted(spots)}"
            elif self.sent[value].place not in {place for place, _ in spots}:
                yield Anomaly.INVENTED, f"{value} was sent to {self.sent[value].place}: {spots}"

    def _uncommitted_reads(self) -> Iterator[tuple[Anomaly, str]]:
        final = [
            (place, row[1], None) for place, rows in self.history.final.items() for row in rows
        ]
        for place, value, at in [*final, *((s.place, s.value, s.at) for _, s in self.reads)]:
            number = self.writer.get(value)
            if number is None:
                continue
            one = self.history.transactions[number]
            if one.outcome is Outcome.FAILED:
                yield Anomaly.ABORTED_READ, f"{value} of {self._name(number)} in {place}"
            elif one.committing is None or (at is not None and at < one.committing):
                words = (
                    f"{value} of {self._name(number)} in {place} at {at}, commit {one.committing}"
                )
                yield Anomaly.PRECOMMITTED_READ, words

    def _whole(self) -> Iterator[tuple[Anomaly, str]]:
        read = {seen.value for _, seen in self.reads}
        for number in sorted(self.committed):
            values = [sent.value for sent in self.history.transactions[number].sent]
            missing = [value for value in values if value not in self.final]
            if not missing:
                continue
            if len(missing) < len(values):
                yield Anomaly.TORN, f"{self._name(number)}: {missing} of {values} are missing"
            is_known = self.history.transactions[number].outcome is Outcome.OK
            for value in missing:
                if is_known or value in read:
                    yield Anomaly.LOST, f"{value} of {self._name(number)}, at {self._spot(value)}"

    def _polls(self) -> Iterator[tuple[Anomaly, str]]:
        by_reader = defaultdict[tuple[str, Place], list[Seen]](list)
        for name, seen in self.reads:
            by_reader[name, seen.place].append(seen)
        for (name, place), rows in by_reader.items():
            for before, after in itertools.pairwise(rows):
                if after.offset <= before.offset:
                    words = f"{name} in {place}: {after.offset} after {before.offset}"
                    yield Anomaly.NONMONOTONIC_POLL, words
            offsets = {row.offset for row in rows}
            first = 0 if name in self.history.readers else min(offsets)
            for offset, value in self.history.final.get(place, ()):
                if first <= offset < max(offsets) and offset not in offsets:
                    yield Anomaly.SKIP, f"{name} in {place}: {value} at {offset}"

    def _sends(self) -> Iterator[tuple[Anomaly, str]]:
        last: dict[tuple[str, Place], tuple[int, str]] = {}
        for one in self.history.transactions:
            for sent in one.sent:
                offset = self.offset_of.get(sent.value)
                if offset is None:
                    continue
                before = last.get((one.process, sent.place), (-1, ""))
                if offset <= before[0]:
                    words = f"{one.process} in {sent.place}: {sent.value} at {offset}, {before}"
                    yield Anomaly.NONMONOTONIC_SEND, words
                last[one.process, sent.place] = offset, sent.value

    def _copies(self) -> Iterator[tuple[Anomaly, str]]:
        outputs = defaultdict[str, list[str]](list)
        for value in self.final:
            source = self.sent[value].source if value in self.sent else None
            if source is not None:
                outputs[source].append(value)
        for source, several in outputs.items():
            if len(several) > 1:
                yield Anomaly.PROCESSED_TWICE, f"{source}: {several}"
        for place, committed in self.history.inputs.items():
            for offset, value in self.history.final.get(place, ()):
                if offset < committed and value not in outputs:
                    yield Anomaly.SKIPPED_INPUT, f"{value} at {offset} of {place}, {committed}"
                if offset >= committed and value in outputs:
                    yield Anomaly.UNCOMMITTED_INPUT, f"{value} at {offset} of {place}, {committed}"

    def _log(self) -> Iterator[tuple[Anomaly, str]]:
        """The log's markers against outcomes, and against what readers of committed records are given."""
        for place, rows in (self.history.log or {}).items():
            for offset, value, is_committed in rows:
                number = self.writer.get(value)
                if is_committed is None:
                    yield Anomaly.UNSTABLE_END, f"{value} at {offset} of {place}"
                elif number is not None and is_committed != (number in self.committed):
                    words = f"{value} at {offset} of {place}, {self._name(number)}: {is_committed}"
                    yield Anomaly.WRONG_MARKER, words
            marked = [(row.offset, row.value) for row in rows if row.is_committed]
            final = list(self.history.final.get(place, ()))
            if marked != final:
                difference = sorted(set(marked) ^ set(final))[:5]
                yield Anomaly.MISREAD_LOG, f"{place}: {len(marked)}, {len(final)}; {difference}"

    def graph(self) -> Graph:
        """The committed transactions with their dependencies."""
        builder = GraphBuilder()
        versions = self._versions()
        for order in versions.values():
            writers = [self.writer[value] for _, value in order]
            for before, after in itertools.pairwise(writers):
                builder.add(before, after, Edge.WW)
        for number in self.committed:
            self._add_reads(builder, number, versions)
        last: dict[str, int] = {}
        for number in sorted(self.committed):
            process = self.history.transactions[number].process
            if process in last:
                builder.add(last[process], number, Edge.PROCESS)
            last[process] = number
        return builder.edges

    def _versions(self) -> dict[Place, list[tuple[int, str]]]:
        """By place: offsets and values of committed transactions, in their order."""
        found = defaultdict[Place, set[tuple[int, str]]](set)
        for place, offset, value in self.known:
            if self.writer.get(value) in self.committed:
                found[place].add((offset, value))
        return {place: sorted(rows) for place, rows in found.items()}

    def _add_reads(
        self, builder: GraphBuilder, number: int, versions: dict[Place, list[tuple[int, str]]]
    ) -> None:
        newest: dict[Place, int] = {}
        for seen in self.history.transactions[number].seen:
            writer = self.writer.get(seen.value)
            if writer in self.committed:
                builder.add(writer, number, Edge.WR)
            newest[seen.place] = max(seen.offset, newest.get(seen.place, -1))
        for place, offset in newest.items():
            rows = versions.get(place, [])
            index = bisect_left(rows, (offset + 1, ""))
            if index < len(rows):
                builder.add(number, self.writer[rows[index][1]], Edge.RW)

    def name_cycle(self, cycle: Cycle) -> str:
        return " ".join(f"{self._name(number)} -{edge.value}->" for number, edge in cycle.steps)

    def _name(self, number: int) -> str:
        one: Transaction = self.history.transactions[number]
        return f"transaction {number} ({one.process}, {one.outcome.value})"

    def _spot(self, value: str) -> str:
        return f"{self.sent[value].place} {self.offset_of.get(value)}"
