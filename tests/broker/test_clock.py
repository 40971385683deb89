"""The broker's clocks while the machine's clock is set, stops and goes wrong."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.clock import CONFIRMATION_MS, CORRECTION_MS_MAX, LONG_STOP_MS, Clock
from echoless.protocol.dedup import ProducerEntry
from echoless.storage.clock_checkpoint import ClockReading
from echoless.storage.producers.state import ProducerStates

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HOUSEKEEPING_MS = 5_000


@dataclass
class Machine:
    """A machine's two clocks. `run` lets time pass, `wall_ms` can be set at will."""

    wall_ms: int = NOW_MS
    up_ms: int = 77_000

    def start(self, last: ClockReading | None = None) -> Clock:
        return Clock(lambda: self.wall_ms, lambda: self.up_ms, last)

    def run(self, clock: Clock, for_ms: int, every_ms: int = HOUSEKEEPING_MS) -> None:
        for _ in range(for_ms // every_ms):
            self.wall_ms += every_ms
            self.up_ms += every_ms
            clock.observe()


def test_in_a_new_directory_all_clocks_agree() -> None:
    """The steady clock begins with the time of day, so that its times can be read."""
    machine = Machine()
    clock = machine.start()
    machine.run(clock, HOUR_MS)
    assert clock.steady_ms() == clock.trusted_wall_ms() == NOW_MS + HOUR_MS
    assert clock.steps_total == 0


@pytest.mark.parametrize("step_ms", [25 * HOUR_MS, -25 * HOUR_MS, 8 * DAY_MS, -30 * DAY_MS])
def test_a_step_does_not_move_the_steady_clock(
    step_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No one becomes idle because a clock was set; the step is logged once."""
    machine = Machine()
    clock = machine.start()
    machine.wall_ms += step_ms
    with caplog.at_level(logging.WARNING):
        machine.run(clock, 60_000)
    assert clock.steady_ms() == NOW_MS + 60_000
    (line,) = caplog.messages
    assert ("forward by" if step_ms > 0 else "back by") in line
    assert clock.steps_total == 1


def test_a_step_forward_has_to_last_before_records_are_deleted_by_it() -> None:
    """A step that is taken back in time never counts."""
    machine = Machine()
    clock = machine.start()
    machine.wall_ms += 8 * DAY_MS
    machine.run(clock, CONFIRMATION_MS)
    assert clock.trusted_wall_ms() == NOW_MS + CONFIRMATION_MS
    machine.run(clock, HOUSEKEEPING_MS)
    assert clock.trusted_wall_ms() == machine.wall_ms
    machine.wall_ms -= 8 * DAY_MS
    machine.run(clock, HOUSEKEEPING_MS)
    assert clock.trusted_wall_ms() == machine.wall_ms
    machine.wall_ms += 8 * DAY_MS
    machine.run(clock, CONFIRMATION_MS // 2)
    machine.wall_ms -= 8 * DAY_MS
    machine.run(clock, 2 * CONFIRMATION_MS)
    assert clock.trusted_wall_ms() == machine.wall_ms


def test_corrections_are_followed_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """NTP slews a clock all the time."""
    machine = Machine()
    clock = machine.start()
    for _ in range(100):
        machine.wall_ms += CORRECTION_MS_MAX // 2
        machine.run(clock, HOUSEKEEPING_MS)
    assert clock.trusted_wall_ms() == machine.wall_ms
    assert not caplog.messages


@pytest.mark.parametrize(
    ("away_ms", "says"),
    [
        (0, ""),
        (10 * 60_000, ""),
        (HOUR_MS * 12, ""),
        (LONG_STOP_MS + 1, "the clock is wrong"),
        (-2_000, "one of the two is wrong"),
        (-30 * DAY_MS, "one of the two is wrong"),
    ],
)
def test_no_producer_ages_while_no_broker_runs(
    away_ms: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the wall clock says of the stop; what it says is logged if it is hard to believe."""
    machine = Machine()
    before = machine.start()
    machine.run(before, HOUR_MS)
    last = before.reading()
    machine.wall_ms += away_ms
    machine.up_ms = 5
    after = machine.start(last)
    assert after.steady_ms() == last.steady_ms
    assert says in "".join(caplog.messages)
    assert bool(says) == bool(caplog.messages)


def test_a_start_long_after_the_last_stop_deletes_nothing_at_first() -> None:
    """Nor does a second start in the same hour: what the first one trusted is what is kept."""
    machine = Machine()
    last = machine.start().reading()
    machine.wall_ms += 8 * DAY_MS
    for _ in range(3):
        clock = machine.start(last)
        machine.run(clock, HOUR_MS // 4)
        last = clock.reading()
    assert last.wall_ms == NOW_MS + 3 * HOUR_MS // 4
    clock = machine.start(last)
    machine.run(clock, CONFIRMATION_MS + HOUSEKEEPING_MS)
    assert clock.trusted_wall_ms() == machine.wall_ms


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["run", "set", "restart"]),
        st.integers(-40 * DAY_MS, 40 * DAY_MS),
        st.integers(1, 30),
    ),
    max_size=12,
)


@given(steps=STEPS, expiration_hours=st.integers(1, 24))
def test_producers_expire_by_the_time_that_brokers_ran_and_by_nothing_else(
    steps: list[tuple[str, int, int]], expiration_hours: int
) -> None:
    """It holds for any steps of the wall clock and any restarts in between."""
    expiration_ms = expiration_hours * HOUR_MS
    states = ProducerStates(expiration_ms=expiration_ms)
    machine = Machine()
    clock = machine.start()
    ran_ms = 0
    states.put(1, ProducerEntry(0, 0, clock.steady_ms(), ()))
    for kind, by_ms, hours in steps:
        trusted_ms = clock.trusted_wall_ms()
        if kind == "run":
            machine.run(clock, hours * HOUR_MS, every_ms=HOUR_MS)
            ran_ms += hours * HOUR_MS
        else:
            machine.wall_ms = max(0, machine.wall_ms + by_ms)
            if kind == "restart":
                last, machine.up_ms = clock.reading(), hours
                clock = machine.start(last)
            clock.observe()
            assert clock.trusted_wall_ms() <= trusted_ms + HOUR_MS
        states.expire(clock.steady_ms())
        assert len(states) == (ran_ms < expiration_ms)
        assert clock.trusted_wall_ms() <= machine.wall_ms + CORRECTION_MS_MAX
