"""The requests of both ports, and what each says about itself, for checking rules.

Knows only the names: their handlers are not imported, because rules are read before the broker
exists.
"""

from __future__ import annotations

from typing import Final

from broker.faults.fields import RuleError
from broker.faults.match import BATCH_FIELDS, Match

BATCH_API: Final = "produce"

NAMES_PARTITIONS: Final = (
    "produce",
    "fetch",
    "list_offsets",
    "offset_fetch",
    "offset_for_leader_epoch",
    "delete_records",
    "describe_producers",
    "elect_leaders",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "producer_state",
    "lease_pid",
    "replica_fetch",
    "replica_snapshot",
)
"""APIs whose requests name topics and partitions."""

NAMES_TOPICS: Final = (
    "metadata",
    "create_topics",
    "delete_topics",
    "create_partitions",
    "await_topic",
)
"""APIs whose requests name only topics."""

NAMES_NOTHING: Final = (
    "find_coordinator",
    "sasl_handshake",
    "api_versions",
    "init_producer_id",
    "describe_configs",
    "alter_configs",
    "incremental_alter_configs",
    "describe_cluster",
    "hello",
)

BETWEEN_BROKERS: Final = frozenset({"replica_fetch", "replica_snapshot", "await_topic"})
"""Messages that only a rule naming them, a freeze or a cut link affects."""

APIS: Final = (*NAMES_PARTITIONS, *NAMES_TOPICS, *NAMES_NOTHING)

ERROR_APIS: Final = (
    "produce",
    "fetch",
    "metadata",
    "init_producer_id",
    "list_offsets",
    "find_coordinator",
    "offset_fetch",
    "create_topics",
    "describe_producers",
    "lease_pid",
    "producer_state",
    "replica_fetch",
    "replica_snapshot",
)
"""APIs that can be answered with an `error`."""


def check_api(match: Match) -> None:
    """Raises `RuleError` for an API that is not served, or that lacks something else being matched."""
    api = match.api
    if api is None:
        return
    if api not in APIS:
        raise RuleError(f"match.api takes one of {', '.join(sorted(APIS))}; not {api!r}")
    for name in match.given:
        if name in BATCH_FIELDS and api != BATCH_API:
            raise RuleError(
                f"match.{name}: only {BATCH_API} carries batches, and match.api is {api}"
            )
        if name == "topic" and api in NAMES_NOTHING:
            raise RuleError(f"match.topic: {api} requests name no topics")
        if name == "partition" and api not in NAMES_PARTITIONS:
            raise RuleError(f"match.partition: {api} requests name no partitions")
