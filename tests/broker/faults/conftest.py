"""Fixtures of the faults' tests."""

from __future__ import annotations

import pytest

from tests.broker.faults.lab import Lab
from tests.support.in_process import Running


@pytest.fixture
async def lab(running: Running) -> Lab:
    """A broker in this process that has the topic with two partitions, and no rules."""
    lab = Lab(running)
    await lab.create_topic(partitions=2)
    return lab
