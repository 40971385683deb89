"""Transactions of librdkafka and of our producer while brokers are killed: their history breaks no promise."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from tests.transactions.history.run import Options, run

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.time_limit(900)]


@pytest.mark.parametrize(
    ("brokers", "copier"),
    [(1, "librdkafka"), pytest.param(3, "echoless", marks=pytest.mark.cluster)],
    ids=["one", "three"],
)
def test_every_promise_is_kept(brokers: int, copier: str) -> None:
    """Four writers, a copier and two readers; aborts, abandoned producers and impatient commits among them."""
    directory = Path(tempfile.mkdtemp(prefix="transactions-"))
    verdict = run(directory, Options(seconds=20, seed=brokers, brokers=brokers, copier=copier))
    verdict.print(Console(width=120))
    assert verdict.is_kept, f"{verdict.failures}; every log is in {directory}"
    counts = verdict.counts
    assert counts["brokers killed"] >= 3
    assert counts["transactions committed"] > 20
    assert counts["transactions aborted"] > 5
    assert counts["copies visible"] > 5
    shutil.rmtree(directory)
