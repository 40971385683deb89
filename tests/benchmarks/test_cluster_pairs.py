"""A benchmark of clusters prints the figures it has, whatever a later step runs into."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from benchmarks import cluster_pairs
from benchmarks.cluster_pairs import AnyCluster, Figures, compare


@contextmanager
def named(kind: str) -> Iterator[Any]:
    yield kind


def measure(cluster: AnyCluster, partitions: int, figures: Figures) -> None:
    """Has Kafka fail in its second step."""
    figures.note("first step, s", partitions / 2)
    if str(cluster) == "kafka":
        raise TimeoutError
    figures.note("second step, s", 3.0)


def test_what_was_measured_before_a_failure_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other kind is measured to its end, and the exit status says that something is missing."""
    monkeypatch.setattr(cluster_pairs, "fresh", named)
    monkeypatch.setattr("sys.argv", ["benchmark", "--rounds", "2"])
    assert compare(None, 4, measure) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["4", "partitions", "echoless", "kafka"],
        ["first", "step,", "s", "2.00", "2.00"],
        ["second", "step,", "s", "3.00", "-"],
    ]
    monkeypatch.setattr("sys.argv", ["benchmark", "--only", "echoless"])
    assert compare(None, 4, measure) == 0
