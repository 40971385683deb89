"""The lag of consumer groups, from what a broker knows: the offsets that it coordinates, the partitions that it holds.

No one but its consumers knows whether a group reads committed records only. So its lag counts up to the high watermark, as Kafka's
tools do, and besides it is counted how much of that is held back: not before the transactions that are open end can a group
that reads committed records get it, and the producer is to blame, not the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from echoless.broker.admin.view import BrokerView

OFFSETS_MAX: Final = 20_000
"""Committed offsets that are looked at; those of groups with members come first."""


class GroupLags:
    """Records between the committed offsets and the high watermarks, by group and topic."""

    def __init__(self, is_shown: Callable[[str], bool] | None = None) -> None:
        """`is_shown`: whether a topic counts; None: each does."""
        self._is_shown = is_shown
        self.by_topic: dict[tuple[str, str], int] = {}
        self.held_back: dict[tuple[str, str], int] = {}
        """The part of the lag at and above the last stable offset; no pair without any."""
        self.unknown = 0
        """Offsets that were not looked at, or in partitions of which this broker holds no replica."""

    def add_all(self, broker: BrokerView) -> Iterator[None]:
        """Adds the lag of one offset a step. Never negative: a copy of the end may be older than the commit."""
        for seen, one in enumerate(broker.groups.committed()):
            partition = broker.partitions.get((one.topic, one.partition))
            if partition is None or seen >= OFFSETS_MAX:
                self.unknown += 1
            elif one.offset >= 0 and (self._is_shown is None or self._is_shown(one.topic)):
                key = one.group_id, one.topic
                lag = max(partition.high_watermark - one.offset, 0)
                self.by_topic[key] = self.by_topic.get(key, 0) + lag
                if lag:
                    stable_end = max(partition.last_stable_offset, one.offset)
                    if held_back := partition.high_watermark - stable_end:
                        self.held_back[key] = self.held_back.get(key, 0) + held_back
            yield


def by_group(lags: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """The sums of each group."""
    found: dict[str, int] = {}
    for (group, _), lag in lags.items():
        found[group] = found.get(group, 0) + lag
    return found
