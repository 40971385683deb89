"""The log lines of a cluster member about what it leads, and about what may be lost with it."""

from __future__ import annotations

import logging

from echoless.broker.cluster.joining import Joining
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.partition import Partition

logger = logging.getLogger(__name__)


class LeadershipLog:
    """A `RoleListener` that logs."""

    def __init__(self, joining: Joining, metrics: Metrics) -> None:
        self._joining = joining
        self._metrics = metrics

    def led(self, partition: Partition, epoch: int) -> None:
        """Logs the leader epoch, and an error if its first leader may lack committed records."""
        logger.info("%s: leads in epoch %d", partition.name, epoch)
        if self._joining.unsafe_tails.pop(partition.name, None) is not None:
            self._metrics.unsafe_tail_leaderships_total += 1
            logger.error(
                "%s: this broker was the last one in sync when its machine failed: what was "
                "acknowledged and not on disk yet is lost (log_flush=commit prevents that)",
                partition.name,
            )

    def lost(self, partition: Partition) -> None:
        """Does nothing: what ends a leadership is logged where it happens."""
