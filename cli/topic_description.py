"""The output of `echoless topics describe`: metadata, offsets and overrides combined."""

from __future__ import annotations

from typing import Any

from echoless.cli.cluster import ClusterConnections, check

TOPIC_RESOURCE = 2
"""DescribeConfigs: the resource is a topic."""
_TOPIC_SOURCE = 1
"""DescribeConfigs: the topic itself sets the value."""
EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets."""


def describe_topics(cluster: ClusterConnections, topics: Any) -> list[dict[str, Any]]:
    """Each of `topics` (from metadata) with its overrides, and its partitions with their offsets."""
    starts = offsets_at(cluster, topics, EARLIEST)
    ends = offsets_at(cluster, topics, LATEST)
    return [
        {
            "name": topic.name,
            "id": str(topic.topic_id),
            "configs": _overrides(cluster, topic.name),
            "partitions": [
                {
                    "partition": p.partition_index,
                    "leader": p.leader_id,
                    "leader_epoch": p.leader_epoch,
                    "replicas": list(p.replica_nodes),
                    "isr": list(p.isr_nodes),
                    "start_offset": starts.get((topic.name, p.partition_index)),
                    "end_offset": ends.get((topic.name, p.partition_index)),
                }
                for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
            ],
        }
        for topic in topics
    ]


def offsets_at(
    cluster: ClusterConnections, topics: Any, timestamp: int
) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the offset that ListOffsets returns; -1 if no record is that new."""

    def fields_for(partitions: dict[str, list[int]]) -> dict[str, Any]:
        listed = [
            {
                "name": topic,
                "partitions": [{"partition_index": i, "timestamp": timestamp} for i in indexes],
            }
            for topic, indexes in partitions.items()
        ]
        return {"replica_id": -1, "isolation_level": 0, "topics": listed}

    return {
        (topic.name, partition.partition_index): partition.offset
        for answer in cluster.ask_leaders("list_offsets", topics, fields_for)
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code.value == 0
    }


def _overrides(cluster: ClusterConnections, topic: str) -> dict[str, str]:
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic}
    answer = cluster.request(
        "describe_configs", {"resources": [{**resource, "configuration_keys": None}]}
    )
    (result,) = answer.results
    check(result.error_code, topic, result.error_message)
    return {c.name: c.value for c in result.configs if c.config_source == _TOPIC_SOURCE}
