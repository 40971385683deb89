"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest

from tests.cli.command import Command


@pytest.fixture
def echoless(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command: `echoless("topics", "list", "--json").json`."""
    return Command(capsys)
