"""The outcome of a scenario's run: records sent and acknowledged compared with the log. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from echoless.testkit.clients.client import Deliveries

Stored = Mapping[tuple[str, int], Sequence[int]]
"""By topic and partition: the numbers of its records, in log order."""


class Outcome(enum.Enum):
    """The outcome in one phrase. The first one that applies, from the worst on."""

    LOST = "acknowledged, and not stored"
    OUT_OF_ORDER = "stored out of order"
    TWICE = "stored twice"
    REFUSED = "refused, and not stored"
    ONCE = "stored once, in order"


class Verdict(NamedTuple):
    """Counts of records, except for the last three."""

    sent: int
    acknowledged: int
    stored: int
    lost: int
    """Acknowledged, but not in the log."""
    duplicates: int
    out_of_order: int
    """After a greater number of their partition; repeats count as duplicates only."""
    failures: dict[str, int]
    """Records that the client gave up, by the name of the error."""
    fatal: str | None
    outcome: Outcome


def judge(deliveries: Deliveries, stored: Stored) -> Verdict:
    """Compares one producer's deliveries with the log. A number twice in a topic is a duplicate."""
    copies = Counter((topic, number) for (topic, _), found in stored.items() for number in found)
    acknowledged = {(ack.place.topic, ack.place.number) for ack in deliveries.acknowledged}
    lost = sum(record not in copies for record in acknowledged)
    duplicates = sum(copies.values()) - len(copies)
    out_of_order = sum(map(count_out_of_order, stored.values()))
    return Verdict(
        sent=len(deliveries.sent),
        acknowledged=len(deliveries.acknowledged),
        stored=sum(copies.values()),
        lost=lost,
        duplicates=duplicates,
        out_of_order=out_of_order,
        failures=deliveries.failures,
        fatal=deliveries.fatal,
        outcome=_outcome(lost, out_of_order, duplicates, len(deliveries.failed)),
    )


def _outcome(lost: int, out_of_order: int, duplicates: int, failed: int) -> Outcome:
    if lost:
        return Outcome.LOST
    if out_of_order:
        return Outcome.OUT_OF_ORDER
    if duplicates:
        return Outcome.TWICE
    return Outcome.REFUSED if failed else Outcome.ONCE


def count_out_of_order(numbers: Sequence[int]) -> int:
    """Numbers that come after a greater one, without their repeats."""
    seen: set[int] = set()
    greatest, count = -1, 0
    for number in numbers:
        count += number not in seen and number < greatest
        seen.add(number)
        greatest = max(greatest, number)
    return count
