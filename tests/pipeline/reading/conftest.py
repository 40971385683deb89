"""A broker for the reader's tests, and records to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.exactly_once.broker_thread import BrokerThread


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    """A broker in a thread."""
    with BrokerThread(tmp_path / "broker", num_partitions=3) as running:
        yield running
