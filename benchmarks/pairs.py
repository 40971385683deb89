"""Candidates measured in turn, several rounds, and the medians of two compared.

The order alternates (A B, B A, A B ...), because this machine's speed drifts by more than most
differences; the ratio is taken round by round before its median is.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Pair:
    """The medians of one measurement over all rounds."""

    first: float
    second: float
    ratio: float
    """first / second, median over the rounds."""
    spread: tuple[float, float]
    """The smallest and the largest ratio of a round."""


def run_load(
    kind: str, bootstrap: str, topic: str, *, timeout_s: float | None = None, **options: object
) -> dict[str, float]:
    """One run of `benchmarks.load`, in a separate process, which is ended after `timeout_s`."""
    command = [sys.executable, "-m", "benchmarks.load", kind]
    command += ["--bootstrap", bootstrap, "--topic", topic]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        command += [flag] if value is True else [flag, str(value)]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s)
    answer: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return answer


def in_turn(
    rounds: int, first: Callable[[], Mapping[str, float]], second: Callable[[], Mapping[str, float]]
) -> dict[str, Pair]:
    """Runs both `rounds` times, alternating the order; returns one `Pair` per figure they report."""
    firsts, seconds = several_in_turn(rounds, (first, second))
    return pairs_of(firsts, seconds)


def several_in_turn(
    rounds: int, candidates: Sequence[Callable[[], Mapping[str, float]]]
) -> list[list[Mapping[str, float]]]:
    """Runs each `rounds` times, every second round backwards; returns what each reported."""
    found: list[list[Mapping[str, float]]] = [[] for _ in candidates]
    order = list(range(len(candidates)))
    for _ in range(rounds):
        for index in order:
            found[index].append(candidates[index]())
        order.reverse()
    return found


def pairs_of(
    firsts: Sequence[Mapping[str, float]], seconds: Sequence[Mapping[str, float]]
) -> dict[str, Pair]:
    """One `Pair` per figure that both reported."""
    return {
        name: _pair([one[name] for one in firsts], [one[name] for one in seconds])
        for name in firsts[0]
    }


def _pair(first: list[float], second: list[float]) -> Pair:
    ratios = [a / b if b else float("nan") for a, b in zip(first, second, strict=True)]
    return Pair(
        statistics.median(first),
        statistics.median(second),
        statistics.median(ratios),
        (min(ratios), max(ratios)),
    )


def print_pair(name: str, pair: Pair, first: str = "Echoless", second: str = "Kafka") -> None:
    """One line: both medians, the median ratio, its smallest and largest value."""
    low, high = pair.spread
    print(
        f"{name:44} {first} {pair.first:11.2f}   {second} {pair.second:11.2f}   "
        f"ratio {pair.ratio:7.3f}  [{low:.3f} .. {high:.3f}]",
        flush=True,
    )
