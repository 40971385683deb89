"""A minute and a half of every fault there is, and nothing lost, nothing twice, in order."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from tests.nemesis.run import WRITERS, Options, run
from tests.toolchain import require

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.time_limit(600)]


def test_the_promise_is_kept_whatever_breaks() -> None:
    """Every acknowledged record is stored once and in order on every replica, and read so."""
    require("zookeeper", *(tool for program, _ in WRITERS for tool in program.tools))
    directory = Path(tempfile.mkdtemp(prefix="nemesis-"))
    verdict = run(directory, Options(seconds=85, seed=1))
    verdict.print(Console(width=100))
    assert verdict.is_kept, f"{verdict.failures}; every log is in {directory}"
    assert verdict.acknowledged > 0
    shutil.rmtree(directory)
