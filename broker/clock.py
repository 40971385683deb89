"""The broker's two clocks: one that cannot be set, and the wall clock as far as it is trusted.

A machine's wall clock gets set: by NTP after a boot without a network, by hand, by a restored virtual
machine. Two things must not follow such a step, because they discard state:

* Idle producers expire by `steady_ms`, the clock of the data directory. It advances with the system's
  monotonic clock, resumes at the next start where the last process left it, and stands still while no
  broker runs or the machine sleeps: time in which no producer could have sent its retry.
* What is old by the time of day is deleted by `deletion_ms`: records, committed offsets, tombstones. It is
  `trusted_wall_ms`, which follows small corrections and backward steps at once; a step forward counts only after
  the clock has run on from there for `CONFIRMATION_MS`. While the clock is in `doubt`, beside those of other
  brokers (`cluster/peer_clocks.py`), nothing is old.

Record timestamps, LogAppendTime, log lines and answers show the wall clock as it is.

Invariant: `trusted_wall_ms` is never ahead of the wall clock by more than a correction.

Why: `docs/decisions/clocks.md`. Called by `broker.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from echoless.storage.clock_checkpoint import ClockReading

logger = logging.getLogger(__name__)

CORRECTION_MS_MAX: Final = 1_000
"""The largest correction between two observations; anything more is a step."""
CONFIRMATION_MS: Final = 3_600_000
"""The time a step forward has to last before segments are deleted by it."""
STOP_MS_MAX: Final = 3_600_000
"""A stop of up to this length, by the wall clock, is taken at face value."""
NOT_COMPARED: Final = "this broker's clock has not been compared with the other brokers' yet"
"""The doubt of a clock that nothing vouches for."""
LONG_STOP_MS: Final = 24 * 3_600_000
"""A stop longer than this, by the wall clock, is worth a warning."""


class Clock:
    """The clocks of one process. `observe` has to be called every few seconds."""

    def __init__(
        self,
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        last: ClockReading | None,
    ) -> None:
        """Resumes from `last`, the reading in the data directory; None in a new one."""
        now_ms = wall_ms()
        self.steps_total = 0
        """Steps of the wall clock since the start."""
        self.doubt: str | None = None
        """The reason for which nothing may be deleted by the time of day."""
        self.wall_ms = wall_ms
        """The wall-clock time as it is."""
        self._monotonic_ms = monotonic_ms
        start_ms = now_ms if last is None else last.steady_ms
        self._steady_offset_ms = start_ms - monotonic_ms()
        self._wall_ahead_ms = now_ms - start_ms
        """The lead of the wall clock over the steady one when it was last observed."""
        self._trusted_ahead_ms = self._wall_ahead_ms
        self._stepped_ms: int | None = None
        """When the forward step that is not trusted yet was observed, by the steady clock."""
        if last is not None:
            self._resume(last, now_ms)

    def steady_ms(self) -> int:
        """The data directory's clock, which counts only the time while a broker runs."""
        return self._monotonic_ms() + self._steady_offset_ms

    def trusted_wall_ms(self) -> int:
        """The wall-clock time, without a forward step that has not been confirmed yet."""
        return self.steady_ms() + self._trusted_ahead_ms

    def deletion_ms(self) -> int:
        """The time by which old things are deleted; 0, at which nothing is old, while the clock is in doubt."""
        return 0 if self.doubt is not None else self.trusted_wall_ms()

    def set_doubt(self, doubt: str | None) -> None:
        """Stops or resumes deletion by time, and logs it when that changes."""
        if doubt is not None and self.doubt in {None, NOT_COMPARED}:
            level = logging.INFO if doubt == NOT_COMPARED else logging.ERROR
            logger.log(
                level, "%s: nothing is deleted by time here (records, offsets, tombstones)", doubt
            )
        elif doubt is None and self.doubt is not None:
            logger.info("clocks agree: what is old is deleted again")
        self.doubt = doubt

    def to_wall_ms(self, steady_ms: int) -> int:
        """The wall-clock time of a steady-clock moment, had no broker stopped since."""
        return steady_ms + self._wall_ahead_ms

    def reading(self) -> ClockReading:
        """The reading for the data directory to keep for the next start."""
        steady_ms = self.steady_ms()
        return ClockReading(steady_ms, steady_ms + self._trusted_ahead_ms)

    def observe(self) -> None:
        """Detects and logs a step of the wall clock since the last call."""
        steady_ms = self.steady_ms()
        before_ms, self._wall_ahead_ms = self._wall_ahead_ms, self.wall_ms() - steady_ms
        step_ms = self._wall_ahead_ms - before_ms
        if abs(step_ms) > CORRECTION_MS_MAX:
            self.steps_total += 1
            logger.warning(
                "the wall clock stepped %s by %s, or the machine was suspended: idle producers do "
                "not expire by it%s",
                "forward" if step_ms > 0 else "back",
                _duration(abs(step_ms)),
                _retention_waits() if step_ms > 0 else "",
            )
            self._stepped_ms = steady_ms
        self._follow(steady_ms)

    def _follow(self, steady_ms: int) -> None:
        """Trusts the wall clock if it is behind, near, or has run on from a step for long enough."""
        lead_ms = self._wall_ahead_ms - self._trusted_ahead_ms
        has_lasted = self._stepped_ms is None or steady_ms - self._stepped_ms >= CONFIRMATION_MS
        if has_lasted and lead_ms > CORRECTION_MS_MAX:
            logger.info(
                "the wall clock has gone on for %s since its step: old segments are deleted by it again",
                _duration(CONFIRMATION_MS),
            )
        if has_lasted or lead_ms <= CORRECTION_MS_MAX:
            self._trusted_ahead_ms = self._wall_ahead_ms
            self._stepped_ms = None

    def _resume(self, last: ClockReading, now_ms: int) -> None:
        """Compares the wall clock with the last process's; logs what is impossible or doubtful."""
        stop_ms = now_ms - last.wall_ms
        if stop_ms > STOP_MS_MAX:
            self._trusted_ahead_ms = last.wall_ms - last.steady_ms
            self._stepped_ms = last.steady_ms
        if stop_ms < -CORRECTION_MS_MAX:
            logger.warning(
                "the wall clock shows %s, but a broker ran on this data directory at %s: one of the "
                "two is wrong; idle producers do not expire by it",
                _time(now_ms),
                _time(last.wall_ms),
            )
        elif stop_ms > LONG_STOP_MS:
            logger.warning(
                "the wall clock shows %s, and a broker last ran on this data directory at %s: unless "
                "it was stopped for %s the clock is wrong; idle producers do not expire by it%s",
                _time(now_ms),
                _time(last.wall_ms),
                _duration(stop_ms),
                _retention_waits(),
            )


def _retention_waits() -> str:
    return f", old segments only after it has gone on for {_duration(CONFIRMATION_MS)}"


def _duration(ms: int) -> str:
    return str(timedelta(milliseconds=ms))


def _time(ms: int) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)).isoformat(
        sep=" ", timespec="seconds"
    )
