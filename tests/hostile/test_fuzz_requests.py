"""Requests from kio's schemas, hostile in every field, against a real broker; see `fuzz/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.fuzz.kafka_requests import VERSIONS
from tests.hostile.fuzz.native_messages import TYPES
from tests.hostile.fuzz.run import Report, fuzz
from tests.support.fresh_seed import fresh_seed

SEED = 20_261_122
REQUESTS = 600


def assert_harmless(report: Report, seed: int) -> None:
    hint = f"python -m tests.hostile.fuzz --seed {seed}"
    assert report.complaints == [], "\n".join([hint, *report.complaints])
    assert report.requests >= len(VERSIONS) + len(TYPES), "each API and version had its turn"
    assert len(report.waits_s) > 10, "the good client produced meanwhile"


@pytest.mark.slow
def test_hostile_requests_harm_no_one(tmp_path: Path):
    """The broker lives, logs no traceback, and stores each good record once, in good time."""
    assert_harmless(fuzz(tmp_path, SEED, requests=REQUESTS), SEED)


@pytest.mark.slow
def test_half_a_minute_of_hostile_requests_harms_no_one(tmp_path: Path):
    """The same as above, with requests that are new with each commit."""
    seed = fresh_seed()
    assert_harmless(fuzz(tmp_path, seed, seconds=30.0), seed)
