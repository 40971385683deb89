"""Half a minute of every rule on one broker, half a minute on three, and every record is correct."""

from __future__ import annotations

import pytest
from rich.console import Console

from tests.soak.run import Options, run
from tests.testkit.tools import NAMES
from tests.toolchain import require


@pytest.mark.clients
@pytest.mark.cluster
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.time_limit(600)
@pytest.mark.parametrize("brokers", [1, 3])
def test_every_record_is_stored_once_whatever_the_rules_do(brokers: int) -> None:
    """Nothing lost, nothing twice, in order, and every client continues, for all six clients."""
    require("java", *NAMES)
    verdict = run(Options(seconds=25, seed=brokers, brokers=brokers))
    verdict.print(Console(width=120))
    assert verdict.failures == []
    assert all(row.acknowledged for row in verdict.rows)
