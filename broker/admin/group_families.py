"""The metrics of consumer groups. Their number is bounded, however many groups there are."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from echoless.broker.admin.group_lags import GroupLags
from echoless.broker.admin.view import BrokerView

LAGS_SHOWN_MAX: Final = 200
"""Pairs of group and topic that have a series, those with the largest lags."""
_STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable")


def group_families(broker: BrokerView, families: list[Metric]) -> Iterator[None]:
    """Adds the metrics of the groups that this broker coordinates; a group or an offset a step."""
    states = Counter(dict.fromkeys(_STATES, 0))
    for one in broker.groups.listed((), ()):
        if one is not None:
            states[one.state] += 1
        yield
    gauge = GaugeMetricFamily(
        "echoless_groups", "Consumer groups that this broker coordinates", labels=["state"]
    )
    for state, count in sorted(states.items()):
        gauge.add_metric([state], count)
    families.append(gauge)
    families.append(
        GaugeMetricFamily(
            "echoless_group_members", "Members of these groups", broker.groups.member_count
        )
    )
    families.append(
        CounterMetricFamily(
            "echoless_group_rebalances_total",
            "Rebalances that this broker has completed",
            broker.groups.rebalances_completed,
        )
    )
    yield from _lag_families(broker, families)


def _lag_families(broker: BrokerView, families: list[Metric]) -> Iterator[None]:
    lags = GroupLags()
    yield from lags.add_all(broker)
    gauge = GaugeMetricFamily(
        "echoless_group_lag",
        f"Records after the committed offsets, for the {LAGS_SHOWN_MAX} largest",
        labels=["group", "topic"],
    )
    shown = heapq.nlargest(LAGS_SHOWN_MAX, lags.by_topic.items(), key=lambda item: item[1])
    for (group, topic), lag in sorted(shown):
        gauge.add_metric([group, topic], lag)
    families.append(gauge)
    gauge = GaugeMetricFamily(
        "echoless_group_lag_held_back",
        "The part of these lags that transactions hold back which have not ended, where there is any",
        labels=["group", "topic"],
    )
    for (group, topic), _ in sorted(shown):
        if held_back := lags.held_back.get((group, topic)):
            gauge.add_metric([group, topic], held_back)
    families.append(gauge)
    families.append(
        GaugeMetricFamily(
            "echoless_group_lags_left_out",
            "Pairs of group and topic without a series",
            len(lags.by_topic) - len(shown),
        )
    )
    families.append(
        GaugeMetricFamily(
            "echoless_group_offsets_without_lag",
            "Committed offsets that were not compared with the end of their partition",
            lags.unknown,
        )
    )
