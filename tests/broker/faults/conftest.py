"""Fixtures of the faults' tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.faults.lab import Lab
from tests.cli.command import Command, Ran
from tests.support.in_process import Running


@pytest.fixture
async def lab(running: Running) -> Lab:
    """A broker in this process that has the topic with two partitions, and no rules."""
    lab = Lab(running)
    await lab.create_topic(partitions=2)
    return lab


@pytest.fixture
def echoless_verify(capsys: pytest.CaptureFixture[str]) -> Callable[[object], Ran]:
    """Runs `echoless verify` on a data directory."""
    command = Command(capsys)
    return lambda directory: command("verify", directory)
