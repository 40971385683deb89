"""Brokers and sinks for the tests of the exactly-once sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.exactly_once.attempts import PARTITIONS, Attempts
from tests.pipeline.exactly_once.broker_thread import BrokerThread


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    """A broker that creates topics on first use."""
    with BrokerThread(tmp_path / "broker", num_partitions=PARTITIONS) as running:
        yield running


@pytest.fixture
def attempts(broker: BrokerThread, tmp_path: Path) -> Attempts:
    return Attempts(broker, tmp_path / "ledger")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes tasks read so few rows at once that they can die between two chunks."""
    monkeypatch.setattr("echoless.pipeline.exactly_once.rows.CHUNK_ROWS", 100)
