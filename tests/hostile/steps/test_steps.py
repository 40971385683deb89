"""No request of any API holds the event loop for long: repeated, many and long names, and null.

A sample: one request to each API in each mode. `python -m tests.hostile.steps.walk` sends all of them, in minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.steps import shapes
from tests.hostile.steps.walk import MODES, STEP_S_MAX, walking

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(300)]


SAMPLES = dict(zip(MODES, (0, 1, 2, 5), strict=True))
"""Which request the first API gets in each mode. Not 3, by which Fetch names thousands of partitions that exist: their rows
are made in one step when a connection first names them (docs/hostile.md)."""


@pytest.mark.parametrize(("mode", "first"), SAMPLES.items())
def test_no_step_of_the_loop_takes_long(tmp_path: Path, mode: str, first: int) -> None:
    """Measured in processor time, for every API, without an authorizer, for a stranger, before a log-in, and after one."""
    with walking(tmp_path, mode) as walk:
        held = map(walk.held, shapes.sampled(first))
        assert [one.text for one in held if one.step_s > STEP_S_MAX] == []
