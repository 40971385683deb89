"""The end of a member's roles after its disk has failed, while its process goes on.

Other brokers have to lead what it led. It stays registered, as one that is leaving: clients get
errors from it until a restart.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from echoless.broker.cluster.joining import Joining
from echoless.broker.essential_task import essential_task
from echoless.broker.limited_log import COORDINATOR, RetryLog
from echoless.broker.replication.fetchers import Fetchers
from echoless.broker.replication.isr_changes import IsrChanges
from echoless.broker.tree.node_tree import CoordinationError

logger = logging.getLogger(__name__)
limited: Final = RetryLog(logger)

RETRY_PAUSE_S: Final = 0.2


class DiskFailure:
    """Takes a broker without a disk out of replication and out of all leaderships."""

    def __init__(self, joining: Joining, fetchers: Fetchers, isr_changes: IsrChanges) -> None:
        self._joining = joining
        self._fetchers = fetchers
        self._isr_changes = isr_changes
        self._stepping_down: asyncio.Task[None] | None = None

    def step_down(self) -> None:
        """Follows nothing from now on, and has others lead.

        Until they do, no ISR is changed: followers lag because their leader cannot be read.
        """
        self._fetchers.end()
        self._isr_changes.end()
        self._stepping_down = essential_task(self._announce(), "stepping down")

    async def _announce(self) -> None:
        """Tries until the cluster has been notified, in this session or in the next one."""
        while True:
            try:
                await self._joining.announce_departure()
                break
            except CoordinationError as error:
                message = "the cluster does not know yet that the disk failed: %s"
                limited.log(logging.WARNING, COORDINATOR, message, error)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def close(self) -> None:
        """Gives up what is under way."""
        if self._stepping_down is not None:
            self._stepping_down.cancel()
            await asyncio.gather(self._stepping_down, return_exceptions=True)
