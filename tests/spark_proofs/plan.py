"""The faults of a run, from a seed: which, in which batch of the query. Pure.

A step belongs to a batch: it comes `delay_ms` after that batch began, whichever driver runs it.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.spark_proofs.numbered_source import SOURCES


class Kind(enum.StrEnum):
    """One way in which things break."""

    KILL_DRIVER = "SIGKILL of the driver, and a restart"
    SPLIT_BRAIN = "driver paused, a second one started, the first woken"
    FAIL_TASK = "task failed on purpose"
    SLOW_TASK = "task made slow"
    KILL_WORKER = "SIGKILL of a Python worker"
    KILL_EXECUTOR = "SIGKILL of an executor"
    LOSE_ANSWERS = "acknowledgements lost for a while"
    KILL_BROKER = "SIGKILL of a broker, and a restart"


IN_TASKS: Final = (Kind.FAIL_TASK, Kind.SLOW_TASK)
"""Kinds that wait at a record."""
LONG_PLAN: Final = {
    Kind.SPLIT_BRAIN: 2,
    Kind.FAIL_TASK: 20,
    Kind.SLOW_TASK: 8,
    Kind.KILL_WORKER: 20,
    Kind.KILL_EXECUTOR: 4,
    Kind.LOSE_ANSWERS: 10,
    Kind.KILL_BROKER: 5,
}
"""How many of each, besides the restarts of the driver."""
SHORT_PLAN: Final = {
    Kind.FAIL_TASK: 3,
    Kind.SLOW_TASK: 1,
    Kind.KILL_WORKER: 2,
    Kind.LOSE_ANSWERS: 1,
    Kind.KILL_BROKER: 1,
}
_DELAY_MS_MAX: Final = 1500
_LASTS_MS: Final = {Kind.SPLIT_BRAIN: (8_000, 12_000), Kind.LOSE_ANSWERS: (500, 3000)}
_OTHER_LASTS_MS: Final = (0, 1500)
_APART_MAX: Final = 4
"""A driver that has just started needs some work before it is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault."""

    kind: Kind
    batch: int
    delay_ms: int
    lasts_ms: int
    choice: int
    """Any number: selects the broker or worker."""
    source: int
    row: int
    """The row of the source's file in this batch at which a task's fault waits."""


def make_plan(
    seed: int, counts: Mapping[Kind, int], *, batches: int, rows_per_file: int
) -> list[Step]:
    """Steps ordered by batch. Between two ends of the driver some batches are left alone."""
    dice = random.Random(seed)
    ends = [
        kind for kind in (Kind.KILL_DRIVER, Kind.SPLIT_BRAIN) for _ in range(counts.get(kind, 0))
    ]
    apart = max(1, min(_APART_MAX, (batches - 1) // max(1, len(ends))))
    steps = [
        _step(dice, kind, batch, rows_per_file)
        for kind, batch in zip(ends, dice.sample(range(1, batches, apart), len(ends)), strict=True)
    ]
    others = [kind for kind in Kind if kind not in ends for _ in range(counts.get(kind, 0))]
    steps += [_step(dice, kind, dice.randrange(batches), rows_per_file) for kind in others]
    return sorted(steps, key=lambda step: (step.batch, step.delay_ms))


def _step(dice: random.Random, kind: Kind, batch: int, rows_per_file: int) -> Step:
    # A slow task must stay slow long enough to get a twin.
    row_end = rows_per_file // 4 if kind is Kind.SLOW_TASK else rows_per_file
    return Step(
        kind=kind,
        batch=batch,
        delay_ms=dice.randrange(_DELAY_MS_MAX),
        lasts_ms=dice.randint(*_LASTS_MS.get(kind, _OTHER_LASTS_MS)),
        choice=dice.randrange(2**16),
        source=dice.randrange(SOURCES),
        row=dice.randrange(row_end),
    )
