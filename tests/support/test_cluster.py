"""The wait for a leader, with brokers that say what a test has them say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster


@pytest.mark.parametrize(
    ("said", "other_than", "found"), [((-1, -1, 2), -1, 2), ((1, -1, 1, 3), 1, 3), ((2,), -1, 2)]
)
def test_a_leader_is_waited_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: tuple[int, ...],
    other_than: int,
    found: int,
) -> None:
    """A leader that is silent for a moment looks like none, and one that was killed may be said to lead still."""
    cluster, answers = Cluster(tmp_path), iter(said)
    monkeypatch.setattr(cluster, "leader", lambda *_: next(answers))
    assert cluster.wait_for_leader("t", 0, other_than=other_than) == found
