"""The number of calls that the broker makes for a request does not grow much."""

from __future__ import annotations

from pathlib import Path

from benchmarks import replica_fetch_calls
from benchmarks.request_calls import RECORDED, count_calls

_FACTOR_MAX = 1.3


async def test_a_request_takes_at_most_a_third_more_calls_than_recorded(tmp_path: Path) -> None:
    """No kind of request takes 1.3 times the calls that were counted when they were last recorded."""
    found = await count_calls(tmp_path)

    for name, count in found.items():
        assert 0 < count <= _FACTOR_MAX * RECORDED[name], (
            f"{name} took {RECORDED[name]} calls, and takes {count}; see docs/decisions/request-cost.md"
        )


async def test_a_follower_s_fetch_takes_at_most_a_third_more_calls_than_recorded() -> None:
    """A leader answers one for every few requests, and more of them the more followers it has."""
    count = await replica_fetch_calls.count_calls()
    assert 0 < count <= _FACTOR_MAX * replica_fetch_calls.RECORDED, (
        f"it took {replica_fetch_calls.RECORDED} calls, and takes {count:.0f}; see docs/decisions/replication-cost.md"
    )
