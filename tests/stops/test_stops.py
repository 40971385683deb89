"""The short form of `python -m tests.stops`: every loss once, from a fixed seed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.nemesis.network import reason_unavailable
from tests.stops.losses import Loss
from tests.stops.run import run

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.time_limit(600)]

SEED = 20


def test_every_stop_is_in_time_and_clean(tmp_path: Path) -> None:
    """Whatever is lost and whenever: within 5 s, with 0, logs closed, no record lost or doubled."""
    if reason := reason_unavailable():
        pytest.skip(f"links cannot be cut here: {reason}")
    report = run(tmp_path, len(Loss), random.Random(SEED))
    said = "\n".join(report.lines())
    print(said)
    assert not report.bad, said
    assert not report.wrong_records, said
    assert {one.while_starting for one in report.stops} == {True, False}, "draw another seed"
