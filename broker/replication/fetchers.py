"""Which partitions are fetched from which broker: one `Fetcher` and one task per leader."""

from __future__ import annotations

import asyncio

from broker.essential_task import essential_task
from broker.partitions.partition import Partition
from broker.replication.fetcher import Fetcher, FetcherContext


class Fetchers:
    """All fetchers of this broker. Used from one event loop."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._by_leader: dict[int, Fetcher] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leader_of: dict[str, int] = {}
        """Leader ids by partition name."""

    def follow(self, partition: Partition) -> None:
        """Fetches the partition from its leader from now on, in this leader epoch."""
        self.unfollow(partition)
        leader_id = partition.leader_id
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = self._by_leader[leader_id] = Fetcher(leader_id, self._context)
            self._tasks[leader_id] = essential_task(fetcher.run(), f"fetcher of broker {leader_id}")
        fetcher.add(partition)
        self._leader_of[partition.name] = leader_id

    def unfollow(self, partition: Partition) -> None:
        """Stops fetching it. A leader with no other followed partition is left alone."""
        leader_id = self._leader_of.pop(partition.name, None)
        if leader_id is None:
            return
        fetcher = self._by_leader[leader_id]
        fetcher.remove(partition)

    def wake(self) -> None:
        """Retries what failed: brokers have come or gone."""
        for fetcher in self._by_leader.values():
            fetcher.wake()

    async def close(self) -> None:
        """Stops all fetching."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._by_leader.clear()
        self._leader_of.clear()
