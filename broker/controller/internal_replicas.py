"""More replicas for internal topics, as the cluster grows. Pure.

The first client that looks for a coordinator has the topic created, however few brokers are there yet. Later ones
get their share by reassignments, which only add replicas: a broker that is away is waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from echoless.broker.metadata.topic import Topic


def with_missing_replicas(
    topic: Topic, partition: int, brokers: Collection[int], replication_factor: int
) -> tuple[int, ...] | None:
    """The replicas that the partition should get; None if it has enough, or is on its way already.

    `brokers`: those alive and staying. The ones that hold the fewest partitions of the topic come first.
    """
    replicas = topic.assignment[partition]
    missing = min(replication_factor, len({*brokers, *replicas})) - len(replicas)
    if missing <= 0 or partition in topic.reassignments or topic.states.get(partition) is None:
        return None
    held = Counter(one for others in topic.assignment.values() for one in others)
    candidates = sorted(set(brokers) - set(replicas), key=lambda one: (held[one], one))
    added = candidates[:missing]
    return (*replicas, *added) if added else None
