"""Due times: every key comes back in time, and what was only put off costs nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echoless.storage.due_times import DueTimes

KEYS = st.tuples(st.sampled_from("ab"), st.integers(0, 2))
STEPS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 30), st.integers(0, 3)), max_size=60)


@given(STEPS)
def test_each_key_comes_back_once_at_the_earliest_of_its_times(steps: list) -> None:
    """Not later, and not again until it is given another time; a dictionary of times says the same."""
    due: DueTimes[tuple[str, int]] = DueTimes()
    model: dict[tuple[str, int], int] = {}
    now = 0
    for key, time, passed in steps:
        due.by(key, time)
        if time is not None:
            model[key] = min(time, model.get(key, time))
        now += passed
        expected = {one for one, at in model.items() if at <= now}
        found = due.pop(now)
        assert len(found) == len(set(found))
        assert set(found) == expected
        for one in expected:
            del model[one]


def test_what_is_put_off_again_and_again_takes_no_memory() -> None:
    """A log that is appended to every second expires a second later each time."""
    due: DueTimes[tuple[str, int]] = DueTimes()
    for second in range(10_000):
        due.by(("orders", 0), 604_800 + second)
    assert len(due._heap) == 1
