"""The times in which a member's session, and with it every leadership, is in doubt.

`SessionGuard` says when. Meanwhile the partitions refuse by themselves (`Partition.check_leader`);
this file deals with the requests that were waiting already, and with what could not be committed.

Those requests wait on for a while: nothing acknowledges them in doubt, and most doubts end with a new proof of the
same session, as after a pause of this process. Then no other broker has led, and they are committed as if there had been
none. Refused, they would be sent again for nothing; and librdkafka takes a refused batch for stored, at an offset that it does not know,
if the next one on the connection arrives after the doubt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from echoless.broker.metrics import Metrics
from echoless.broker.partitions.partition import Partition
from echoless.broker.replication.isr_changes import IsrChanges
from echoless.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

WAIT_SHARE: Final = 1 / 2
"""The share of the session's timeout that requests wait on for. A session of which the coordinator hears nothing ends then
at the latest, and another broker may lead; a new proof takes three eighths: the report lag, and the next probe after it."""


class LeadershipDoubt:
    """Fails what waits in a doubt that lasts, and commits what became possible when a doubt ends."""

    def __init__(
        self,
        held: Mapping[tuple[str, int], Partition],
        isr_changes: IsrChanges,
        metrics: Metrics,
        *,
        session_timeout_s: Callable[[], float],
    ) -> None:
        self._held = held
        self._isr_changes = isr_changes
        self._metrics = metrics
        self._began_s: float | None = None
        """In the loop's time; None while there is no doubt."""
        self._session_timeout_s = session_timeout_s
        self._too_long: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begins a doubt, in which nothing is acknowledged."""
        loop = asyncio.get_running_loop()
        self._began_s = loop.time()
        self._too_long = loop.call_later(WAIT_SHARE * self._session_timeout_s(), self._fail_waiters)
        self._metrics.leadership_doubts_total += 1
        logger.warning("the coordinator has been silent for too long: acknowledging nothing more")

    def _fail_waiters(self) -> None:
        """Fails the requests that wait for an acknowledgement: another broker may lead by now."""
        logger.warning("it is still silent: refusing the requests that wait for an acknowledgement")
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
        lagged meanwhile: this broker refused all their fetches. Those that were level and silent say again that they are.
        """
        began_s, self._began_s = self._began_s, None
        self.close()
        now_s = asyncio.get_running_loop().time()
        for partition in self._held.values():
            if partition.in_sync is not None and began_s is not None:
                partition.waiters.append.wake()  # notes when they were heard, which is excused now
                partition.in_sync.excuse(now_s - began_s, now_s)
            partition.advance_high_watermark()
        self._isr_changes.consider_all()

    def close(self) -> None:
        """Fails nothing any more."""
        if self._too_long is not None:
            self._too_long.cancel()
            self._too_long = None
