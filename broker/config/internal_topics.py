"""The internal topics: those in which coordinators of this broker keep their state.

Clients read them and change nothing that is in them. `INTERNAL_TOPICS` has a row for each; whatever treats such a topic
specially (its creation, its settings, what is refused, the replicas it gets as the cluster grows) asks its row.

An internal topic keeps the newest record of each key and nothing else. Retention would delete the state of
coordinators, so some settings are fixed: no client changes them, and what is stored does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from echoless.broker.config.names import Config
from echoless.protocol.errors import ErrorCode, KafkaError

CONSUMER_OFFSETS: Final = "__consumer_offsets"
"""Consumer groups and the offsets that they have committed."""
TRANSACTION_STATE: Final = "__transaction_state"
"""Transactional ids."""
_NEWEST_OF_EACH_KEY: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}


REFUSED_BY_0_2: Final[Mapping[str, str]] = {"needs.echoless.0.3.0.for.transactions": "true"}
"""Stored with `__transaction_state`, and in force nowhere. A release before 0.3.0 knows no such setting, and ends at its start with
"Unknown topic config name", where it would take open and aborted records for committed ones."""


class InternalTopic(NamedTuple):
    """One internal topic."""

    name: str
    kept: str
    """The kind of thing that is kept in it, in the singular. Each one's state is in the partition that its name chooses."""
    partitions_from: str
    """The name in `Config` of the number of partitions that it is created with."""
    replicas_from: str
    """The name in `Config` of the number of replicas that it should have."""
    fixed: Mapping[str, str]
    """Settings that are in force whatever is stored."""
    initial: Mapping[str, str]
    """Settings that it is created with, and that clients may change."""
    refused_by_older: Mapping[str, str] = {}
    """Stored with it, so that releases that would do harm in a cluster with this topic refuse to start."""
    min_isr_from: str | None = None
    """The name in `Config` of its `min.insync.replicas` when it is created, 0 for that of the broker; None: always that."""

    def partition_count(self, config: Config) -> int:
        """The number of partitions to create it with."""
        return int(getattr(config, self.partitions_from))

    def replication_factor(self, config: Config) -> int:
        """The number of replicas that each partition should have, once there are as many brokers."""
        return int(getattr(config, self.replicas_from))

    def created_with(self, config: Config) -> dict[str, str]:
        """The settings to create it with."""
        created = {**self.fixed, **self.initial, **self.refused_by_older}
        least = 0 if self.min_isr_from is None else getattr(config, self.min_isr_from)
        if least:
            created["min.insync.replicas"] = str(least)
        return created

    def check_allowed(self, changes: Mapping[str, str]) -> None:
        """Raises `KafkaError` INVALID_CONFIG if new overrides would change how it keeps records."""
        for name, value in self.fixed.items():
            if changes.get(name, value) != value:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{name} of {self.name} is always {value}: coordinators read it back, so the newest record of "
                    f"each key stays, and nothing expires but by their own tombstones",
                )


_ALL: Final = (
    InternalTopic(
        name=CONSUMER_OFFSETS,
        kept="group",
        partitions_from="offsets_topic_num_partitions",
        replicas_from="offsets_topic_replication_factor",
        fixed=_NEWEST_OF_EACH_KEY,
        initial={"segment.bytes": str(100 * 1024 * 1024)},
    ),
    InternalTopic(
        name=TRANSACTION_STATE,
        kept="transactional id",
        partitions_from="transaction_state_log_num_partitions",
        replicas_from="transaction_state_log_replication_factor",
        fixed={**_NEWEST_OF_EACH_KEY, "unclean.leader.election.enable": "false"},
        initial={"segment.bytes": str(100 * 1024 * 1024)},
        refused_by_older=REFUSED_BY_0_2,
        min_isr_from="transaction_state_log_min_isr",
    ),
)
INTERNAL_TOPICS: Final[Mapping[str, InternalTopic]] = {topic.name: topic for topic in _ALL}


def in_force(topic: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The overrides of a topic that apply: whatever is stored, nothing of an internal topic expires."""
    internal = INTERNAL_TOPICS.get(topic)
    if internal is None:
        return overrides
    stored = {name: text for name, text in overrides.items() if name not in REFUSED_BY_0_2}
    return {**internal.initial, **stored, **internal.fixed}


def replacing(topic: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The overrides to store in place of all that a topic has."""
    internal = INTERNAL_TOPICS.get(topic)
    return {**overrides, **internal.refused_by_older} if internal else overrides


def check_allowed(topic: str, changes: Mapping[str, str]) -> None:
    """Raises `KafkaError` INVALID_CONFIG if new overrides would change how an internal topic keeps records."""
    internal = INTERNAL_TOPICS.get(topic)
    if internal is not None:
        internal.check_allowed(changes)
