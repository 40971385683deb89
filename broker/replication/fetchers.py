"""The fetchers of a broker: for each leader that it follows one `Fetcher`, in a task of its own.

A `RoleListener`: a partition that another broker leads is fetched from it.
"""

from __future__ import annotations

import asyncio

from echoless.broker.essential_task import essential_task
from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.partitions.partition import Partition
from echoless.broker.replication.fetcher import Fetcher, FetcherContext


class Fetchers:
    """All fetchers of this broker. Used from one event loop."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._by_leader: dict[int, Fetcher] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._fetcher_of: dict[str, Fetcher] = {}
        """Fetchers by the names of the partitions that they fetch."""
        self._has_ended = False

    def led(self, partition: Partition, epoch: int) -> None:  # noqa: ARG002 - any epoch
        """Stops fetching what this broker leads now."""
        self._unfollow(partition.name)

    def lost(self, partition: Partition) -> None:
        """Fetches the partition from its leader, in this leader epoch, if there is a leader."""
        self._unfollow(partition.name)
        if partition.leader_id != NO_LEADER and not self._has_ended:
            self._follow(partition)

    def _follow(self, partition: Partition) -> None:
        leader_id = partition.leader_id
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = self._by_leader[leader_id] = Fetcher(leader_id, self._context)
            self._tasks[leader_id] = essential_task(fetcher.run(), f"fetcher of broker {leader_id}")
        fetcher.add(partition)
        self._fetcher_of[partition.name] = fetcher

    def _unfollow(self, name: str) -> None:
        """Stops fetching it. The fetcher stays, even if it has no other partition."""
        fetcher = self._fetcher_of.pop(name, None)
        if fetcher is not None:
            fetcher.remove(name)

    def wake(self) -> None:
        """Retries what failed: brokers have come or gone."""
        for fetcher in self._by_leader.values():
            fetcher.wake()

    def end(self) -> None:
        """Fetches nothing from now on, whatever this broker follows."""
        self._has_ended = True
        for name in list(self._fetcher_of):
            self._unfollow(name)

    async def close(self) -> None:
        """Stops all fetching."""
        self.end()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._by_leader.clear()
