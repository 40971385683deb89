"""Metrics of consumer groups: states, members, rebalances, and a bounded number of lags."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.metrics_core import Metric

from echoless.broker.admin import group_families, group_lags
from echoless.coordinators.groups.answers import CommittedOffset, ListedGroup
from tests.broker.admin.fake_broker import FakeBroker


def measured(broker: Any) -> dict[tuple[str, tuple[str, ...]], float]:
    families: list[Metric] = []
    for _ in group_families.group_families(broker, families):
        pass
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_states_are_there_with_0() -> None:
    """Groups are counted by state, those without one as well; a filtered row is none."""
    broker = FakeBroker()
    broker.groups.groups = [ListedGroup("a", "consumer", "Stable", "classic"), None]
    broker.groups.member_count, broker.groups.rebalances_completed = 3, 5
    found = measured(broker)
    assert found["echoless_groups", ("Stable",)] == 1
    assert found["echoless_groups", ("Empty",)] == 0
    assert found["echoless_group_members", ()] == 3
    assert found["echoless_group_rebalances_total", ()] == 5


def test_lag_is_never_negative() -> None:
    """A commit beyond the end that is known counts 0; -1 is no commit; other brokers' partitions are counted apart."""
    broker = FakeBroker()
    broker.groups.offsets = [
        CommittedOffset("a", "orders", 0, 4),
        CommittedOffset("a", "orders", 1, 1000),
        CommittedOffset("a", "bills", 0, -1),
        CommittedOffset("a", "elsewhere", 0, 4),
    ]
    found = measured(broker)
    assert found["echoless_group_lag", ("a", "orders")] == 5
    assert ("echoless_group_lag", ("a", "bills")) not in found
    assert found["echoless_group_offsets_without_lag", ()] == 1


def test_what_transactions_hold_back_is_counted_besides() -> None:
    """The part of the lag at and above the last stable offset, 6 of 9; nothing for a group that has read beyond it."""
    broker = FakeBroker()
    broker.groups.offsets = [
        CommittedOffset("behind", "orders", 0, 2),
        CommittedOffset("at it", "orders", 0, 6),
        CommittedOffset("beyond", "orders", 0, 8),
        CommittedOffset("at the end", "orders", 0, 9),
    ]
    found = measured(broker)
    shown = {
        labels[0]: (lag, found.get(("echoless_group_lag_held_back", labels)))
        for (name, labels), lag in found.items()
        if name == "echoless_group_lag"
    }
    assert shown == {"behind": (7, 3), "at it": (3, 3), "beyond": (1, 1), "at the end": (0, None)}


def test_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest lags are shown, and how many are not; so many offsets are looked at, and no more."""
    monkeypatch.setattr(group_families, "LAGS_SHOWN_MAX", 2)
    monkeypatch.setattr(group_lags, "OFFSETS_MAX", 4)
    broker = FakeBroker()
    broker.groups.offsets = [CommittedOffset(f"g{n}", "orders", 0, n) for n in range(6)]
    found = measured(broker)
    shown = {labels[0] for name, labels in found if name == "echoless_group_lag"}
    assert shown == {"g0", "g1"}
    assert found["echoless_group_lags_left_out", ()] == 2
    assert found["echoless_group_offsets_without_lag", ()] == 2
