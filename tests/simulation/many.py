"""Many histories on several processors, and what came of them as a table."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.simulation.history import Kind, Result, play

HISTORIES_BETWEEN_COLLECTIONS: Final = 100
CHUNK: Final = 8
FINDING_LENGTH_MAX: Final = 300


@dataclass(slots=True)
class Verdict:
    """The outcome of many histories."""

    histories: int = 0
    steps: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    """How often clients and nemesis did what."""
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.histories += 1
        self.steps += result.steps
        self.counts.update(result.counts)
        if result.findings:
            self.failures.append(result)

    def table(self) -> str:
        """For people."""
        rows = [
            ("histories", self.histories),
            ("failed", len(self.failures)),
            *sorted(self.counts.items()),
            ("callbacks", self.steps),
            ("seconds", round(self.seconds)),
        ]
        return "\n".join(f"{name:<28} {number:>12,}" for name, number in rows)


def play_many(
    seeds: Sequence[int],
    jobs: int,
    on_failure: Callable[[Result], None] = lambda _result: None,
    kind: Kind = Kind.RECORDS,
) -> Verdict:
    """Plays the histories of these seeds in `jobs` processes."""
    verdict = Verdict()
    begun = time.monotonic()
    for result in _results(seeds, jobs, kind):
        verdict.add(result)
        if result.findings:
            on_failure(result)
    verdict.seconds = time.monotonic() - begun
    return verdict


def _results(seeds: Sequence[int], jobs: int, kind: Kind) -> Iterable[Result]:
    play_one = partial(play_quietly, kind=kind)
    if jobs == 1:
        yield from map(play_one, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        yield from pool.imap_unordered(play_one, seeds, chunksize=CHUNK)


def play_quietly(seed: int, kind: Kind = Kind.RECORDS) -> Result:
    """One history, without the broker's log lines and without its trace."""
    if seed % HISTORIES_BETWEEN_COLLECTIONS == 0:
        gc.collect()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return play(seed, kind=kind).without_trace()
    finally:
        logging.disable(before)


def line(result: Result) -> str:
    """One failure in one line."""
    first = result.findings[0][:FINDING_LENGTH_MAX]
    return f"seed {result.seed}: {len(result.findings)} findings, the first: {first}"
