"""Long runs of nothing but appends, folded into one step."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from echoless.diagram.steps import BatchVerdict, Fate, Folded, RoundTrip, Step

KEPT: Final = 3
"""Exchanges that stay unfolded at either end of a folded run."""
_RUN_MIN: Final = 2 * KEPT + 3


def fold(steps: Iterable[Step]) -> list[Step]:
    """The same run with its uneventful middles folded; order and everything else stay."""
    folded: list[Step] = []
    for line, group in groupby(steps, _quiet_line):
        run = list(group)
        folded += run if line is None else _folded(run)
    return folded


def _quiet_line(step: Step) -> tuple[int, int] | None:
    """Producer and broker of an exchange that only appended; None for any other step."""
    if not isinstance(step, RoundTrip) or step.response is not Fate.ARRIVED:
        return None
    if step.faults or not step.sent:
        return None
    if all(one.verdict is BatchVerdict.APPENDED and one.attempt == 1 for one in step.sent):
        return step.producer, step.broker
    return None


def _folded(run: list[Step]) -> list[Step]:
    if len(run) < _RUN_MIN:
        return run
    middle = [step for step in run[KEPT:-KEPT] if isinstance(step, RoundTrip)]
    batches = [one.batch for exchange in middle for one in exchange.sent]
    is_one = len({batch[:4] for batch in batches}) == 1
    summary = Folded(
        time_ms=middle[0].time_ms,
        producer=middle[0].producer,
        broker=middle[0].broker,
        exchanges=len(middle),
        batches=len(batches),
        base_sequence=batches[0].base_sequence if is_one else None,
        last_sequence=batches[-1].last_sequence if is_one else None,
    )
    return [*run[:KEPT], summary, *run[-KEPT:]]
