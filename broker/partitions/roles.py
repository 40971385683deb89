"""Notifications of the roles that this broker plays for the partitions it holds.

`PartitionRegistry` notifies its listeners in the same step of the event loop in which a role changes.
Listeners must not block or raise. The fetchers are one (`broker/replication/fetchers.py`).
"""

from __future__ import annotations

from typing import Protocol

from echoless.broker.partitions.partition import Partition


class RoleListener(Protocol):
    """A part of the broker that acts on gaining or losing leaderships."""

    def led(self, partition: Partition, epoch: int) -> None:
        """Called when this broker has begun to lead the partition, in a new leader epoch."""

    def lost(self, partition: Partition) -> None:
        """Called when this broker does not lead the partition, whether or not it did before.

        Another broker has begun to lead it (`partition.leader_id`), no broker leads it, the session
        has ended, or the replica here is being deleted.
        """
