"""The settings and bounds of a group coordinator."""

from __future__ import annotations

from typing import Final, NamedTuple

COMMIT_PARTITIONS_MAX: Final = 5_000


class GroupCoordinatorConfig(NamedTuple):
    """Kafka's names and defaults, and bounds of our own on what clients can make a coordinator hold."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_000
    """Members of one group; as many ids may be handed out besides (79). A step takes time in proportion to it."""
    new_member_join_timeout_ms: int = 300_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2_000
    """Members of one group of the consumer protocol."""
    offset_metadata_max_bytes: int = 4_096
    """Characters, as in Kafka."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    member_bytes_max: int = 1 << 20
    """Protocols of one member: names and metadata."""
    member_protocols_max: int = 20
    group_bytes_max: int = 16 << 20
    """Protocols and assignments of all members of a group."""
    member_topics_max: int = 10_000
    """Names of topics that a member of the consumer protocol subscribes to."""
    group_topics_max: int = 10_000
    """Names of topics that all members of such a group subscribe to, each counted once: a turn looks at all of them."""
    least_share: int = 256
    """The part of each bound of a broker that any sharer may use, however much others do: one in so many."""
    groups_max: int = 100_000
    """Groups of all coordinators of a broker, those with offsets only included."""
    members_max: int = 50_000
    """Members of all groups of all coordinators of a broker."""
    ids_max: int = 10_000
    """Ids that were handed out and not used; one gives way to the next."""
    bytes_max: int = 128 << 20
    """Protocols and assignments of all members of all coordinators of a broker."""
    metadata_bytes_max: int = 128 << 20
    """Metadata of all offsets of all coordinators of a broker."""
    offsets_max: int = 1_000_000
    """Committed offsets of all coordinators of a broker, which take about 250 bytes each."""
    name_bytes_max: int = 1_024
    """Ids of groups and instances, and names of protocols: they are held and stored."""
    commit_partitions_max: int = COMMIT_PARTITIONS_MAX
    """Offsets of one commit, which is one batch and one step."""
