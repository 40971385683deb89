"""`python -m benchmarks.guard`: does a request cost much more processor time than it did at `BASELINE`?

The two-second form of `benchmarks.versus_commit`, which `make check` runs
(`tests/benchmarks/test_guard.py`). Why it cannot fail by chance: `docs/decisions/request-cost.md`.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.request_cost import Addresses, prepare, request_cost_us
from benchmarks.versus_commit import serving, unpacked
from tests.support.echoless import SOURCES, Echoless

BASELINE: Final = "9c443a2"
"""A commit of main. Name a newer one here once requests have become cheaper, so that it stays so."""
FACTOR_MAX: Final = 1.3
ROUNDS_MAX: Final = 25
"""Rounds of a kind before it counts as more expensive."""
TIME_MAX_S: Final = 20.0
"""A machine that is too busy for so many rounds in this time cannot tell."""
_ROUNDS_MIN: Final = 3
_REQUESTS: Final = {"produce-1k": 150, "produce-1k-of-4": 60, "native-1k": 150, "fetch-1k": 150}
_TOPIC: Final = "guard-{}"


class Cost(NamedTuple):
    """The least processor time of a round, in microseconds per request."""

    here: float
    there: float
    rounds: int

    @property
    def factor(self) -> float:
        return self.here / self.there

    @property
    def is_too_high(self) -> bool:
        """Whether every round that there may be says so."""
        return self.factor > FACTOR_MAX and self.rounds >= ROUNDS_MAX

    @property
    def is_undecided(self) -> bool:
        return self.factor > FACTOR_MAX and self.rounds < ROUNDS_MAX

    def __str__(self) -> str:
        return (
            f"{self.here:.1f} us here, {self.there:.1f} us at {BASELINE}: factor {self.factor:.2f}"
        )


def compare(
    here: Callable[[], float], there: Callable[[], float], *, has_time: Callable[[], bool]
) -> Cost:
    """Measures both in turn until the factor is low enough, `ROUNDS_MAX` times at most.

    Whatever disturbs a round makes it dearer, never cheaper. So the least of many rounds comes down to what the
    code needs, and each further round brings both sides closer to it.
    """
    cost = Cost(math.inf, math.inf, 0)
    while cost.rounds < ROUNDS_MAX and (cost.rounds == 0 or has_time()):
        if cost.rounds % 2:
            second, first = there(), here()
        else:
            first, second = here(), there()
        cost = Cost(min(cost.here, first), min(cost.there, second), cost.rounds + 1)
        if cost.rounds >= _ROUNDS_MIN and cost.factor <= FACTOR_MAX:
            break
    return cost


def costs(there: Path, here: Path = SOURCES) -> dict[str, Cost]:
    """The cost of each kind of request, of two trees of the broker's code."""
    with _both(here, there) as brokers:
        deadline = time.monotonic() + TIME_MAX_S
        return {
            name: compare(
                *(partial(_cost, one, name) for one in brokers),
                has_time=lambda: time.monotonic() < deadline,
            )
            for name in _REQUESTS
        }


@contextmanager
def _both(*trees: Path) -> Iterator[list[Echoless]]:
    """A broker of each tree, started at the same time."""
    with ExitStack() as stack:
        brokers = [stack.enter_context(serving(tree, starts=False)) for tree in trees]
        starting = [threading.Thread(target=_begin, args=[one]) for one in brokers]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        yield brokers


def _begin(broker: Echoless) -> None:
    broker.start()
    for name in _REQUESTS:
        asyncio.run(prepare(_addresses(broker), name, _TOPIC.format(name)))


def _addresses(broker: Echoless) -> Addresses:
    return Addresses(broker.kafka_address, broker.native_address)


def _cost(broker: Echoless, name: str) -> float:
    return request_cost_us(
        broker.process.pid,
        _addresses(broker),
        name,
        _TOPIC.format(name),
        requests=_REQUESTS[name],
        creates_topic=False,
    )


def main() -> int:
    with unpacked(BASELINE) as there:
        found = costs(there)
    for name, cost in found.items():
        print(f"{name:16} {cost}, {cost.rounds} rounds")
    return any(cost.is_too_high for cost in found.values())


if __name__ == "__main__":
    sys.exit(main())
