"""The departure of a cluster member, while it still answers requests.

1. Wait, for a limited time, until everything in the logs led here is committed, and so
   acknowledged: the next leader could not acknowledge it to its producers.
2. Announce the departure in this broker's registration; the controller elects other leaders.
3. Wait until nothing is led here that another replica in sync could lead.

A crash after any step costs no more than a crash without them: the session ends, and others lead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from echoless.broker.cluster.joining import Joining
from echoless.broker.cluster.view import ClusterView
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.partitions.partition import Partition
from echoless.broker.tree.node_tree import CoordinationError

logger = logging.getLogger(__name__)

SETTLE_S: Final = 1.0
"""The time a leaving broker waits for its followers to catch up."""


class Leaving:
    """Hands the leaderships of this broker over to others."""

    def __init__(
        self,
        broker_id: int,
        registry: TopicRegistry,
        held: Mapping[tuple[str, int], Partition],
        *,
        view: ClusterView,
        joining: Joining,
    ) -> None:
        self._broker_id = broker_id
        self._registry = registry
        self._held = held
        self._view = view
        self._joining = joining

    async def hand_over(self, within_s: float) -> None:
        """Returns when nothing is led here that others could lead, or when the time is up.

        The caller has seen to it that nothing more is appended.
        """
        try:
            async with asyncio.timeout(within_s):
                await self._settle()
                await self._have_others_lead()
        except (CoordinationError, TimeoutError) as error:
            logger.warning("leaving without having handed over everything: %s", error or "too late")

    async def _settle(self) -> None:
        """Waits, for a limited time, until everything in the logs led here is committed."""
        led = [one for one in self._held.values() if one.is_leader]
        waits = [
            one.waiters.commit.wait_for(one.log.log_end_offset)
            for one in led
            if one.high_watermark < one.log.log_end_offset
        ]
        if waits:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    await asyncio.gather(*waits, return_exceptions=True)

    async def _have_others_lead(self) -> None:
        """Announces the departure and waits for its effect. Raises `CoordinationError`."""
        handed_over = asyncio.Event()

        def look(_event: object = None) -> None:
            if not self._leads_what_others_could():
                handed_over.set()

        cancel = self._registry.listen(look)
        try:
            await self._joining.announce_departure()
            look()
            await handed_over.wait()
        finally:
            cancel()

    def _leads_what_others_could(self) -> bool:
        return any(
            state.leader == self._broker_id
            and any(
                one != self._broker_id and self._view.registered_epoch(one) is not None
                for one in state.isr
            )
            for topic in self._registry.topics.values()
            for state in topic.states.values()
        )
