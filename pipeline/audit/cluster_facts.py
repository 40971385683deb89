"""Facts that a running cluster gives about its topics besides their batches: which of them may be compacted."""

from __future__ import annotations

from echoless.client.connection import BrokerConnection, ConnectionFailedError
from echoless.client.messages import UnservedApiError
from echoless.client.security import NO_SECURITY, Security
from echoless.pipeline.audit.log_checkpoints import LogCheckpoints
from echoless.pipeline.batches.data_directory import INTERNAL_TOPICS
from echoless.pipeline.batches.partition_leader import connect, read_metadata
from echoless.pipeline.batches.topic_settings import CLEANUP_POLICY, read_topic_settings

_COMPACT = "compact"


def read_cluster_facts(
    bootstrap_servers: str, topic: str | None, security: Security = NO_SECURITY
) -> LogCheckpoints:
    """Asks for the clean-up policy of each topic; where it may not be asked for, it stays unknown.

    Raises `ConnectionFailedError`, `ClusterReadError`.
    """
    with connect(bootstrap_servers, security) as bootstrap:
        partitions = {
            found.name: [part.partition_index for part in found.partitions]
            for found in read_metadata(bootstrap, topic).topics
        }
        policies = _policies(bootstrap, list(partitions))
    return LogCheckpoints.of_cluster(
        [(bootstrap_servers, name, index) for name, found in partitions.items() for index in found],
        {
            (bootstrap_servers, name, index): _COMPACT in policy or name in INTERNAL_TOPICS
            for name, policy in policies.items()
            for index in partitions.get(name, ())
        },
    )


def _policies(connection: BrokerConnection, topics: list[str]) -> dict[str, str]:
    try:
        found = read_topic_settings(connection, topics, [CLEANUP_POLICY])
    except (ConnectionFailedError, UnservedApiError):
        return {}
    return {
        name: settings[CLEANUP_POLICY].value or ""
        for name, settings in found.items()
        if CLEANUP_POLICY in settings
    }
