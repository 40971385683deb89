"""The longest turns of the event loop, as they would have been on an undisturbed machine.

Pure: from the windows that `watched_broker` wrote. A window's longest turn is divided by the slowness of the machine in that
window: its yardstick beside the least of the run. What the host takes at once is in one turn and not in the yardstick; it
happens now and then, a request that holds the loop happens again and again. So the longest turns are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.hostile.siege.beats import INTERVAL_S, Beat

LEFT_OUT = 2
"""How many turns of a phase may be the host's."""


class Turn(NamedTuple):
    """The longest turn of one window."""

    net_s: float
    """Its processor time, without the timer's interval, on an undisturbed machine."""
    slowness: float
    """How many times slower than that the machine was; never less than 1."""
    beat: Beat


def normal_s(beats: Sequence[Beat]) -> float:
    """The yardstick of an undisturbed machine: the least of all windows."""
    return min((beat.yardstick_s for beat in beats), default=0.0)


def longest_turns(beats: Sequence[Beat], normal_s: float) -> list[Turn]:
    """The longest turn of each window, the longest of all first."""
    turns = [_turn(beat, normal_s) for beat in beats]
    return sorted(turns, key=lambda turn: -turn.net_s)


def judged_s(turns: Sequence[Turn]) -> float:
    """The longest turn that is not left out; 0 if there is none."""
    return turns[LEFT_OUT].net_s if len(turns) > LEFT_OUT else 0.0


def _turn(beat: Beat, normal_s: float) -> Turn:
    slowness = max(1.0, beat.yardstick_s / normal_s) if normal_s else 1.0
    return Turn(max(0.0, beat.held_s - INTERVAL_S) / slowness, slowness, beat)
