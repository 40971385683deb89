"""The times in which a member's session, and with it every leadership, is in doubt.

`SessionGuard` says when. Meanwhile the partitions refuse by themselves (`Partition.check_leader`);
this file deals with the requests that were waiting already, and with what could not be committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from echoless.broker.metrics import Metrics
from echoless.broker.partitions.partition import Partition
from echoless.broker.replication.isr_changes import IsrChanges
from echoless.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class LeadershipDoubt:
    """Fails what waits when a doubt begins, and commits what became possible when it ends."""

    def __init__(
        self,
        held: Mapping[tuple[str, int], Partition],
        isr_changes: IsrChanges,
        metrics: Metrics,
    ) -> None:
        self._held = held
        self._isr_changes = isr_changes
        self._metrics = metrics
        self._began_s: float | None = None
        """In the loop's time; None while there is no doubt."""

    def begin(self) -> None:
        """Fails the requests that wait for an acknowledgement: another broker may lead by now."""
        self._began_s = asyncio.get_running_loop().time()
        self._metrics.leadership_doubts_total += 1
        logger.warning("the coordinator has been silent for too long: acknowledging nothing more")
        for partition in self._held.values():
            if partition.is_leader:
                partition.waiters.fail(
                    KafkaError(
                        ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        f"{partition.name} may have another leader",
                    )
                )

    def end(self) -> None:
        """Commits what a flush or an ISR change could not commit during the doubt.

        An ISR change whose outcome is unknown is tried again, now that it can succeed. No follower
        lagged meanwhile: this broker refused all their fetches.
        """
        began_s, self._began_s = self._began_s, None
        now_s = asyncio.get_running_loop().time()
        for partition in self._held.values():
            if partition.in_sync is not None and began_s is not None:
                partition.in_sync.excuse(now_s - began_s, now_s)
            partition.advance_high_watermark()
        self._isr_changes.consider_all()
