"""Every fault there is, once, and nothing lost, nothing twice, in order; TLS and ACLs as well. `make proof` has the long run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from tests.nemesis.plan import Kind
from tests.nemesis.run import WRITERS, Options, run
from tests.support.cluster_security import NativeDoor
from tests.toolchain import require

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.time_limit(600)]


@pytest.mark.parametrize(
    "options",
    [
        Options(seconds=300, seed=7, steps=len(Kind)),
        Options(
            seconds=300,
            seed=2,
            steps=3,
            kinds=(Kind.KILL, Kind.EXPIRE, Kind.CUT_BROKERS),
            security=NativeDoor.SSL,
        ),
    ],
    ids=["open", "secured"],
)
def test_the_promise_is_kept_whatever_breaks(options: Options) -> None:
    """Every acknowledged record is stored once and in order on every replica, and read so."""
    require(*(tool for program, _ in WRITERS for tool in program.tools))
    directory = Path(tempfile.mkdtemp(prefix="nemesis-"))
    verdict = run(directory, options)
    verdict.print(Console(width=100))
    assert verdict.is_kept, f"{verdict.failures}; every log is in {directory}"
    assert verdict.acknowledged > 0
    assert set(verdict.inflicted) == set(options.kinds) - set(verdict.left_out)
    shutil.rmtree(directory)
