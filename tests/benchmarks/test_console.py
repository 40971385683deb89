"""The console's benchmark ends in time, and compares what was measured in the same rounds."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("playwright")

from benchmarks.console import _rounds


def _naming(name: float, asked: list[float]) -> dict[str, float]:
    asked.append(name)
    return {"figure": name}


def test_every_second_round_runs_backwards_and_results_stay_with_their_candidate() -> None:
    asked: list[float] = []
    found = _rounds(
        (lambda: _naming(1, asked), lambda: _naming(2, asked)), 2, time.monotonic() + 3600
    )
    assert asked == [1, 2, 2, 1]
    assert found == [[{"figure": 1}] * 2, [{"figure": 2}] * 2]


def test_no_round_begins_after_the_time_is_up_but_the_first_is_run_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[float] = []
    found = _rounds((lambda: _naming(1, asked), lambda: _naming(2, asked)), 5, time.monotonic() - 1)
    assert found == [[{"figure": 1}], [{"figure": 2}]]
    assert "time is up after 1 of 5 rounds" in capsys.readouterr().err
