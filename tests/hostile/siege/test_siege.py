"""A client that behaves is served while everything hostile happens at once."""

from __future__ import annotations

import pytest

from tests.hostile.siege.attackers import ATTACKERS
from tests.hostile.siege.beats import INTERVAL_S, Beat
from tests.hostile.siege.page import Row, read_each, read_rows
from tests.hostile.siege.run import Options, run
from tests.hostile.siege.turns import LEFT_OUT, longest_turns, normal_s
from tests.hostile.siege.verdict import LOOP_HOLD_S_MAX, WAIT_S_MAX, Cost, Verdict, net_waits

QUICK = ("claims", "half-open", "native-garbage", "false-replicas", "refused-produces")
"""Attackers that have nothing to prepare and leave nothing to clear away."""


@pytest.mark.slow
def test_a_good_client_is_served_during_a_short_siege():
    """The harness itself, with a few attackers: no stall, no sync on the loop, nothing lost."""
    verdict = run(Options(names=QUICK, seconds=1.5, seed=1, peace_s=0.3))
    assert verdict.problems == [], verdict.text()
    assert set(verdict.tries) == set(QUICK)
    assert all(verdict.tries.values()), verdict.text()


@pytest.mark.slow
def test_a_good_client_is_served_while_everything_is_tried_at_once():
    """Its longest wait, and the longest turn of the loop, stay below their bounds."""
    verdict = run(Options(names=list(ATTACKERS), seconds=30, seed=20))
    print(verdict.text())
    assert verdict.problems == [], verdict.text()
    assert all(verdict.tries.values()), verdict.text()


def test_the_page_describes_every_attacker():
    """docs/hostile.md is written by a run: python -m tests.hostile.siege --write-docs."""
    rows = [Row(name, ATTACKERS[name].does) for name in ATTACKERS]
    assert read_rows() == rows
    assert set(read_each()) <= set(rows)


NORMAL_S = 0.0001


def beat(**seen: object) -> Beat:
    fields = {
        "at": 0.0,
        "held_s": 0.0,
        "collected_s": 0.0,
        "late_s": 0.0,
        "own_s": 0.0,
        "queued_s": 0.0,
        "yardstick_s": NORMAL_S,
        "syncs": [],
        "stack": "",
    }
    return Beat(**{**fields, **seen})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("waits", "beats", "problem"),
    [
        ([WAIT_S_MAX], [beat()], "the good client waited"),
        ([], [beat()], "the good client waited"),
        ([0.1], [beat(syncs=["_roll 5"])], "synced on the event loop: _roll 5"),
    ],
)
def test_each_bound_is_judged(waits, beats, problem):
    """A stall is a problem that says what and where."""
    (said,) = judged(waits, beats)
    assert said.startswith(problem)


def test_a_loop_that_is_held_again_and_again_is_found():
    """Each of the longest turns is named with its stack."""
    turn = LOOP_HOLD_S_MAX + 2 * INTERVAL_S
    said = judged([0.1], [beat(held_s=turn, stack="at handler") for _ in range(LEFT_OUT + 1)])
    assert len(said) == LEFT_OUT + 1
    assert all(one.startswith("the loop was held") and "at handler" in one for one in said)


def test_a_turn_that_the_host_took_is_not_the_brokers():
    """It takes tens of milliseconds at once, now and then, and the kernel counts them as processor time."""
    assert judged([0.1], [beat(held_s=9.0)] * LEFT_OUT + [beat()] * 600) == []


@pytest.mark.parametrize(("times", "is_found"), [(1.9, False), (2.1, True)])
def test_turns_are_as_long_as_the_machine_is_slow(times, is_found):
    """At half its speed a turn may take twice the limit, and no more."""
    slow = beat(held_s=times * LOOP_HOLD_S_MAX + INTERVAL_S, yardstick_s=2 * NORMAL_S)
    assert bool(judged([0.1], [beat(), *[slow] * (LEFT_OUT + 1)])) == is_found


def test_no_turn_becomes_longer():
    """A window in which the machine is faster than it usually is makes no turn worse."""
    fast = beat(held_s=LOOP_HOLD_S_MAX + INTERVAL_S, yardstick_s=NORMAL_S / 2)
    turns = longest_turns([fast] * (LEFT_OUT + 1), NORMAL_S)
    assert [turn.slowness for turn in turns] == [1.0] * (LEFT_OUT + 1)


def judged(waits, beats):
    """The problems of a siege with these waits and windows."""
    normal = normal_s(beats)
    verdict = Verdict(seed=0, seconds=1, siege=Cost.of(waits, beats, normal))
    verdict.judge_cost(beats, normal)
    return verdict.problems


def test_time_that_the_machine_gave_to_others_is_no_wait():
    """Neither that of the client's process nor that of the broker's while the client waited."""
    beats = [beat(at=0.1 * number, queued_s=0.05) for number in range(1, 21)]
    (wait,) = net_waits([(0.0, 1.9, 0.5)], beats)
    assert wait == pytest.approx(1.9 - 0.5 - 1.0, abs=0.11)
    assert net_waits([(0.0, WAIT_S_MAX / 4, 0.2)], beats) == [WAIT_S_MAX / 4]


def test_figures_below_the_bounds_are_no_problem():
    """A late beat alone is none: the machine may have been busy with something else."""
    assert judged([0.2], [beat(held_s=LOOP_HOLD_S_MAX, late_s=9.0)] * (LEFT_OUT + 1)) == []
