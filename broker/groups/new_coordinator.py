"""The making of a group coordinator from the configuration of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from echoless.broker.config.loading import Config
from echoless.broker.groups.cluster_topics import ClusterTopics
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.coordinator import GroupCoordinator
from echoless.coordinators.groups.usage import total


def new_coordinator(
    config: Config, topics: ClusterTopics, serving: Callable[[], Iterable[GroupCoordinator]]
) -> GroupCoordinator:
    """A coordinator without groups. `serving` are all that serve on this broker: together they have bounds."""
    return GroupCoordinator(
        GroupCoordinatorConfig(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_max_size=config.group_max_size,
            group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            group_consumer_max_size=config.group_consumer_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        ),
        lambda: total([one.usage for one in serving()]),
        topics,
        lambda sharer: total([one.used_by(sharer) for one in serving()]),
    )
