"""The outcome of a siege: figures of both phases, and the problems."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.hostile.siege.beats import INTERVAL_S, Beat
from tests.hostile.siege.turns import LEFT_OUT, Turn, judged_s, longest_turns

LOOP_HOLD_S_MAX = 0.05
"""Limit on the processor time of one turn of the event loop, without the timer's interval.

A client that sends a request waits for the current turn and for its own. Fifty milliseconds is the
longest wait that Apache Kafka showed while topics were created and deleted. Processor time of one
thread, not a wall clock, and as on an undisturbed machine (`turns`): what else the machine and its host do does
not change it.
"""
WAIT_S_MAX = 1.0
"""Longest wait of the good client for an acknowledgement, with attackers on the same two processors.
The stalls that this suite was made for lasted from 8 to 67 s. What the machine gave to other processes
is taken from waits above half of this (`net_waits`)."""
RESIDENT_BYTES_MAX = 1024 * 1024 * 1024
"""Four of the largest requests, four of the largest answers, and the broker itself."""


def net_waits(waits: Sequence[tuple[float, float, float]], beats: Sequence[Beat]) -> list[float]:
    """The waits without the time in which the machine ran neither the client nor the event loop.

    That is what other processes took, such as the tests beside this one.
    """
    ends = [beat.at for beat in beats]
    found = []
    for at, took_s, client_queued_s in waits:
        first, last = bisect_left(ends, at), bisect_left(ends, at + took_s)
        queued_s = client_queued_s + sum(beat.queued_s for beat in beats[first : last + 1])
        found.append(max(took_s - queued_s, 0.0) if took_s > WAIT_S_MAX / 2 else took_s)
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost to the good client and the event loop in one phase."""

    batches: int
    wait_p50_s: float
    wait_p99_s: float
    wait_max_s: float
    held_s: float
    """Longest processor time of one turn of the loop."""
    judged_s: float
    """The turn that is held to the limit: the longest but two, on an undisturbed machine."""
    own_s: float
    """Longest delay of the loop's timer without the time in which the machine ran others."""
    syncs: int

    @classmethod
    def of(cls, waits: Sequence[float], beats: Sequence[Beat], normal_s: float) -> Cost:
        """`normal_s` is the yardstick of an undisturbed machine."""
        ordered = sorted(waits) or [math.nan]
        return cls(
            batches=len(waits),
            wait_p50_s=ordered[len(ordered) // 2],
            wait_p99_s=ordered[len(ordered) * 99 // 100],
            wait_max_s=ordered[-1],
            held_s=max([0.0, *(one.held_s - INTERVAL_S for one in beats)]),
            judged_s=judged_s(longest_turns(beats, normal_s)),
            own_s=max([0.0, *(one.own_s for one in beats)]),
            syncs=sum(len(one.syncs) for one in beats),
        )

    def __str__(self) -> str:
        return (
            f"{self.batches} batches, waits p50 {_ms(self.wait_p50_s)}, p99 {_ms(self.wait_p99_s)}, "
            f"longest {_ms(self.wait_max_s)}; loop held {_ms(self.held_s)}, "
            f"judged {_ms(self.judged_s)}, late {_ms(self.own_s)}, {self.syncs} syncs on it"
        )


@dataclass(slots=True)
class Verdict:
    """One run."""

    seed: int
    seconds: float
    tries: dict[str, dict[str, int]] = field(default_factory=dict)
    """By attacker, and by the outcome of each try."""
    peace: Cost | None = None
    siege: Cost | None = None
    resident_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def judge_cost(self, beats: Sequence[Beat], normal_s: float) -> None:
        """Holds the siege's figures to their bounds."""
        assert self.siege is not None
        if not self.siege.wait_max_s < WAIT_S_MAX:
            self.problems.append(
                f"the good client waited {_ms(self.siege.wait_max_s)}, more than {_ms(WAIT_S_MAX)}"
            )
        if self.siege.judged_s > LOOP_HOLD_S_MAX:
            for turn in longest_turns(beats, normal_s)[: LEFT_OUT + 1]:
                self.problems.append(_described(turn))
        places = sorted({place for beat in beats for place in beat.syncs})
        self.problems += [f"synced on the event loop: {place}" for place in places]
        if self.resident_bytes > RESIDENT_BYTES_MAX:
            self.problems.append(f"{self.resident_bytes} bytes resident")

    def text(self) -> str:
        """For people."""
        lines = [f"seed {self.seed}, {self.seconds:.0f} s"]
        for name, tries in self.tries.items():
            outcomes = ", ".join(f"{what} {count}" for what, count in sorted(tries.items()))
            lines.append(f"  {name:22} {outcomes}")
        lines += [f"  without attackers: {self.peace}", f"  under attack:      {self.siege}"]
        lines.append(f"  resident at most {self.resident_bytes >> 20} MiB")
        lines += [f"PROBLEM: {one}" for one in self.problems]
        return "\n".join(lines)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _described(turn: Turn) -> str:
    beat = turn.beat
    machine = f"a machine {turn.slowness:.1f} times slower than usual"
    collected = f"{_ms(beat.collected_s)} of it by the garbage collector"
    return (
        f"the loop was held {_ms(beat.held_s)} on {machine}, {collected}; it was at\n{beat.stack}"
    )
