"""Hundreds of random histories of a whole cluster; `python -m tests.simulation` plays any other."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from echoless.broker.config.loading import LogFlush
from tests.simulation.history import Kind, play
from tests.simulation.many import line, play_many
from tests.simulation.transactions.faults import own_kinds
from tests.support.fresh_seed import fresh_seed

FIXED_SEED = 20_261_121
HISTORIES = 200
OTHERS = {
    Kind.COMPACTED: (100, ("batches acknowledged", "batches sent again", "records cleaned away")),
    Kind.GROUPS: (60, ("commits accepted", "commits refused", "generations begun")),
    Kind.TRANSACTIONS: (30, ("transactions committed", "transactions aborted")),
}
"""The number of their histories, and what happens in them."""
JOBS = 2
REPLAYED = [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", [FIXED_SEED, fresh_seed()], ids=["fixed", "fresh"])
def test_no_history_breaks_a_promise(first_seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the network, the disks, the clocks and the coordinator do: 200 histories, and 200 new ones."""
    verdict = play_many(range(first_seed, first_seed + HISTORIES), JOBS)
    with capsys.disabled():
        print(f"\nfrom seed {first_seed}:\n{verdict.table()}")
    assert verdict.failures == [], "\n".join(map(line, verdict.failures))


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", [FIXED_SEED, fresh_seed()], ids=["fixed", "fresh"])
@pytest.mark.parametrize("kind", OTHERS)
def test_no_history_of_another_kind_breaks_a_promise(
    kind: Kind, first_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables that are cleaned all the while, and members of groups, in the same world."""
    histories, done = OTHERS[kind]
    verdict = play_many(range(first_seed, first_seed + histories), JOBS, kind=kind)
    with capsys.disabled():
        print(f"\n{kind.value}, from seed {first_seed}:\n{verdict.table()}")
    assert verdict.failures == [], "\n".join(map(line, verdict.failures))
    for what in done:
        assert verdict.counts[what] > 0, what


@pytest.mark.slow
def test_every_kind_of_fault_strikes() -> None:
    """A few dozen histories see every fault, and hold what makes them hard."""
    verdict = play_many(range(60), jobs=1)
    assert verdict.failures == [], "\n".join(map(line, verdict.failures))
    from tests.simulation.faults import FAULTS

    assert {f"fault: {kind}" for kind in FAULTS} <= set(verdict.counts)
    assert verdict.counts["batches sent again"] > 0


@pytest.mark.slow
def test_a_seed_replays_exactly() -> None:
    """Two processes with different hash seeds play the same histories, event by event."""
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    code = (
        "from tests.simulation.history import Kind, play; "
        f"print(*[play(s, kind=kind).digest for kind in Kind for s in {REPLAYED}])"
    )
    elsewhere = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
    )
    here = [play(seed, kind=kind).digest for kind in Kind for seed in REPLAYED]
    there, _ = elsewhere.communicate(timeout=100)
    assert there.split() == here


def test_a_seed_replays_exactly_however_slow_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Real time decides nothing: on a machine that stalls at every step the history is the same."""
    usual = _course(REPLAYED[0])
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, _stalling(getattr(time, name)))
    assert _course(REPLAYED[0]) == usual


def _course(seed: int) -> tuple[str, int]:
    """Everything that happened, and in how many callbacks."""
    result = play(seed)
    return result.digest, result.steps


def _stalling(clock: Callable[[], float]) -> Callable[[], float]:
    """Makes a minute pass between two readings of the clock by this thread."""
    readings, this_thread = itertools.count(), threading.get_ident()

    def stalling() -> float:
        minutes = next(readings) if threading.get_ident() == this_thread else 0
        return clock() + 60 * minutes

    return stalling


@pytest.mark.slow
def test_another_seed_is_another_history() -> None:
    """The digest distinguishes histories."""
    assert play(3).digest != play(4).digest


def test_what_loses_records_by_design_is_kept_apart() -> None:
    """With log_flush=os a broker without power costs acknowledged records if the others' sessions end first (seed 6029370)."""
    ending = {"break connections", "kill coordinator", "pause coordinator"}
    assert not ending & set(own_kinds(["power"], LogFlush.OS))
    assert ending <= set(own_kinds(["power"], LogFlush.COMMIT))
    assert ending <= set(own_kinds(["kill"], LogFlush.OS))
