"""The configuration names about consumer groups and the topic that keeps their state.

`broker/config/names.py` adds all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from echoless.broker.config.setting import setting
from echoless.broker.config.transactions import TransactionSettings
from echoless.broker.config.values import INT32_MAX, duration, integer, size


@dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class GroupConfig(TransactionSettings):
    """Settings of consumer groups and committed offsets."""

    offsets_topic_num_partitions: int = setting(
        8,
        integer(1, 1000),
        "partitions of __consumer_offsets when it is created; a group's partition depends on the number",
    )
    offsets_topic_replication_factor: int = setting(
        3,
        integer(1, 100),
        "replicas of __consumer_offsets; fewer while the cluster has fewer brokers",
    )
    offsets_retention_minutes: int = setting(
        10_080,
        integer(1, INT32_MAX),
        "offsets of a group without members are forgotten after so many minutes",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, duration(1), "how often offsets are checked for their retention"
    )
    offsets_commit_timeout_ms: int = setting(
        5000,
        duration(1, INT32_MAX),
        "how long a commit, or a change of a group, may wait for the replicas of __consumer_offsets",
    )
    offset_metadata_max_bytes: int = setting(
        4096, size(0, INT32_MAX), "longest metadata of a committed offset, in characters"
    )
    group_min_session_timeout_ms: int = setting(
        6000, duration(1, INT32_MAX), "shortest session timeout that a group member may ask for"
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, duration(1, INT32_MAX), "longest session timeout that a group member may ask for"
    )
    group_initial_rebalance_delay_ms: int = setting(
        0,
        duration(0, INT32_MAX),
        "how long an empty group waits for more members before its first rebalance",
    )
    group_max_size: int = setting(INT32_MAX, integer(1), "members that a group may have")
    group_consumer_session_timeout_ms: int = setting(
        45_000,
        duration(1, INT32_MAX),
        "a member of the consumer protocol that has not sent a heartbeat for so long is removed",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5000,
        duration(1, INT32_MAX),
        "how often members of the consumer protocol are instructed to send heartbeats",
    )
    group_consumer_max_size: int = setting(
        INT32_MAX, integer(1), "members that a group of the consumer protocol may have"
    )
