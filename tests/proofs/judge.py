"""The fate of the records: lost, stored twice, out of order, or read as something else. Pure.

A record is identified by its number; `producer_of` gives its producer. A producer sends ascending
numbers to a partition, so a log that has each of them once, ascending, is what idempotence
promises. The judge knows nothing of brokers: it is given the records sent, the acknowledgements,
the log by offset, and what a consumer read meanwhile.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

NUMBERS_PER_PRODUCER: Final = 100_000_000
EXAMPLES_MAX: Final = 10
UNKNOWN_OFFSET: Final = -1
"""An acknowledgement without an offset: the broker knew of the record, but not its position."""


class Fault(enum.StrEnum):
    """Faults that must never be found."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out of order"
    INVENTED = "stored and never sent"
    MISPLACED = "acknowledged at an offset of another record"
    MISREAD = "read as another record"
    READ_OUT_OF_ORDER = "read out of order"
    UNREAD = "never read"


@dataclass(slots=True)
class Findings:
    """How often each fault was found, and the first examples in words."""

    counts: Counter[Fault] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, fault: Fault, example: str) -> None:
        self.counts[fault] += 1
        if self.counts[fault] <= EXAMPLES_MAX:
            self.examples.append(f"{fault}: {example}")

    def join(self, place: str, other: Findings) -> None:
        """Takes over what was found at `place`."""
        self.counts.update(other.counts)
        self.examples += [f"{place}: {example}" for example in other.examples]


@dataclass(slots=True, frozen=True, kw_only=True)
class Evidence:
    """Everything known of one partition. Offsets begin at 0, and a log has no gap."""

    sent: Mapping[int, int]
    """By producer: how many of its numbers it has used, over all partitions."""
    acknowledged: Sequence[tuple[int, int]]
    """(offset, number), in the order of the acknowledgements."""
    stored: Sequence[int]
    """The number at each offset of the log."""
    read: Sequence[tuple[int, int]]
    """(offset, number), in the order of reading."""


def producer_of(number: int) -> int:
    """The producer whose record this is, counted from 0."""
    return number // NUMBERS_PER_PRODUCER


def first_number(producer: int) -> int:
    """The number of the producer's first record."""
    return producer * NUMBERS_PER_PRODUCER


def judge(evidence: Evidence) -> Findings:
    """Every fault of one partition."""
    findings = Findings()
    offsets = _judge_log(evidence, findings)
    _judge_acknowledgements(evidence, offsets, findings)
    _judge_reads(evidence, findings)
    return findings


def _judge_log(evidence: Evidence, findings: Findings) -> dict[int, int]:
    """Each number once, ascending by producer, and sent by it; returns the first offset of each."""
    offsets: dict[int, int] = {}
    highest: dict[int, int] = {}
    for offset, number in enumerate(evidence.stored):
        producer = producer_of(number)
        if not 0 <= number - first_number(producer) < evidence.sent.get(producer, 0):
            findings.add(Fault.INVENTED, f"{number} at {offset}")
        if number in offsets:
            findings.add(Fault.DUPLICATED, f"{number} at {offsets[number]} and {offset}")
            continue
        offsets[number] = offset
        before = highest.get(producer, -1)
        if number < before:
            findings.add(Fault.OUT_OF_ORDER, f"{number} at {offset}, behind {before}")
        highest[producer] = max(number, before)
    return offsets


def _judge_acknowledgements(
    evidence: Evidence, offsets: Mapping[int, int], findings: Findings
) -> None:
    stored = evidence.stored
    for offset, number in evidence.acknowledged:
        if number not in offsets:
            findings.add(Fault.LOST, f"{number}, acknowledged at {offset}, of {len(stored)} stored")
        elif offset != UNKNOWN_OFFSET and (offset >= len(stored) or stored[offset] != number):
            findings.add(
                Fault.MISPLACED, f"{number} lies at {offsets[number]}, acknowledged at {offset}"
            )


def _judge_reads(evidence: Evidence, findings: Findings) -> None:
    """A consumer reads every offset once, ascending, and finds what stays there."""
    stored, expected = evidence.stored, 0
    for offset, number in evidence.read:
        if offset != expected:
            findings.add(Fault.READ_OUT_OF_ORDER, f"{offset} instead of {expected}")
        expected = offset + 1
        if offset >= len(stored) or stored[offset] != number:
            lies = stored[offset] if offset < len(stored) else "nothing"
            findings.add(Fault.MISREAD, f"{number} at {offset}, where {lies} lies")
    if expected < len(stored):
        findings.counts[Fault.UNREAD] += len(stored) - expected
        findings.examples.append(f"{Fault.UNREAD}: {expected} to {len(stored) - 1}")
