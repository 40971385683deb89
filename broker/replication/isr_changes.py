"""The leader's changes of the in-sync replicas: one conditional write at a time per partition, of many partitions together.

A broker that wins a race against this one has written the state node, and the registry notifies the
partition. While it is unknown whether a write landed, both sets count as in force
(`InSyncReplicas.largest`) until another write of this leader succeeds, or fails because of a newer
state: only then can the first one never land.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from echoless.broker.essential_task import essential_task
from echoless.broker.limited_log import COORDINATOR, RetryLog
from echoless.broker.metadata.topic import StateChange
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.core.in_sync_replicas import InSyncReplicas
from echoless.broker.partitions.partition import Partition
from echoless.broker.replication.joined_changes import JoinedChanges
from echoless.broker.replication.shared_reads import SharedReads
from echoless.broker.tree.node_tree import (
    ConnectionLostError,
    CoordinationError,
    MultiFailedError,
)

logger = logging.getLogger(__name__)
limited: Final = RetryLog(logger)


RETRY_S: Final = 0.5
"""Pause before a change that could not be made is considered again."""
LOOKED_AT_ONCE: Final = 500
"""Partitions in one step of the loop: a look at one that is level takes some 0.5 us."""


class IsrChanges:
    """Keeps the ISR of every partition that this broker leads as it should be."""

    def __init__(
        self,
        registry: TopicRegistry,
        held: Mapping[tuple[str, int], Partition],
        *,
        lag_max_s: float,
        is_proved: Callable[[], bool],
        registered_epoch: Callable[[int], int | None],
        read_epoch: Callable[[int], Awaitable[int | None]],
        metrics: Metrics,
    ) -> None:
        """`registered_epoch`: a broker's epoch as last notified; `read_epoch`: as it is now.

        `is_proved`: whether this broker certainly leads. While it does not, it refuses its
        followers' fetches and commits nothing, so it can tell neither which ones lag nor which have
        caught up.
        """
        self._metrics = metrics
        self._registry = registry
        self._held = held
        self._lag_max_s = lag_max_s
        self._is_proved = is_proved
        self._registered_epoch = registered_epoch
        self._epochs = SharedReads(read_epoch)
        self._joined = JoinedChanges(registry)
        self._changes: dict[str, asyncio.Task[None]] = {}
        """Changes under way, by partition name."""
        self._has_ended = False

    async def run(self) -> None:
        """Looks for followers that lag, twice in the time they are allowed, until cancelled."""
        while True:
            await asyncio.sleep(self._lag_max_s / 2)
            await self.consider_lagging()

    async def consider_lagging(self) -> None:
        """Considers the partitions of which a replica lacks something, since only they change because time has passed.

        One that is level changes when brokers come or go, which is `consider_all`, or its own state does.
        """
        for count, partition in enumerate(list(self._held.values()), 1):
            in_sync = partition.in_sync
            if in_sync is not None and not in_sync.is_level(partition.log.log_end_offset):
                self.consider(partition)
            if not count % LOOKED_AT_ONCE:
                await asyncio.sleep(0)

    def consider_all(self) -> None:
        """Considers every partition: brokers have come or gone, or a doubt has ended."""
        for partition in list(self._held.values()):
            self.consider(partition)

    def consider_progress(self, partition: Partition) -> None:
        """Considers a follower that fetched and may have caught up. Cheap if all are in sync."""
        in_sync = partition.in_sync
        if in_sync is None or len(in_sync.isr) < len(partition.replicas):
            self.consider(partition)

    def consider(self, partition: Partition) -> None:
        """Starts the change that is needed, if there is one and none is under way."""
        if self._has_ended or partition.name in self._changes or not self._is_proved():
            return
        if self._wanted(partition) is not None:
            change = self._change(partition)
            self._changes[partition.name] = essential_task(change, f"ISR of {partition.name}")

    def _wanted(self, partition: Partition) -> tuple[int, ...] | None:
        """The ISR to write; None if nothing has to change."""
        in_sync = partition.in_sync
        if in_sync is None:
            return None
        wanted = in_sync.wanted(
            leader_end_offset=partition.log.log_end_offset,
            high_watermark=partition.high_watermark,
            lag_max_s=self._lag_max_s,
            now_s=asyncio.get_running_loop().time(),
            registered_epoch=self._registered_epoch,
        )
        wanted = self._without_removed(partition, in_sync.isr, wanted)
        return wanted if wanted != in_sync.isr or in_sync.pending is not None else None

    def _without_removed(
        self, partition: Partition, isr: tuple[int, ...], wanted: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The ISR without replicas that a reassignment removes, once all of its target is in sync.

        Otherwise leader and controller could take turns at adding and dropping the old replicas.
        """
        topic = self._registry.topics.get(partition.topic)
        moving = None if topic is None else topic.reassignments.get(partition.index)
        if moving is None or not set(partition.replicas) - set(moving.removing) <= set(isr):
            return wanted
        return tuple(one for one in wanted if one in isr or one not in moving.removing)

    async def _change(self, partition: Partition) -> None:
        try:
            if not await self._write(partition):
                self._consider_later(partition)
                return
        except MultiFailedError:
            logger.info("%s: another change was faster; its state was read again", partition.name)
        except ConnectionLostError as error:
            message = "%s: a change of the ISR may be in force: %s"
            limited.log(logging.WARNING, COORDINATOR, message, partition.name, error)
            self._consider_later(partition)
            return
        except CoordinationError as error:
            message = "%s: no change of the ISR: %s"
            limited.log(logging.ERROR, COORDINATOR, message, partition.name, error)
            self._consider_later(partition)
            return
        finally:
            del self._changes[partition.name]
        self.consider(partition)

    def _consider_later(self, partition: Partition) -> None:
        """Considers it again soon: a follower that has caught up says nothing more that would have it considered."""
        asyncio.get_running_loop().call_later(RETRY_S, self.consider, partition)

    async def _write(self, partition: Partition) -> bool:
        """Writes the ISR; False if, by the state as it is known, there was nothing to write."""
        in_sync, wanted = partition.in_sync, self._wanted(partition)
        topic = self._registry.topics.get(partition.topic)
        before = None if topic is None else topic.states.get(partition.index)
        if in_sync is None or wanted is None or before is None:
            return False
        if before.leader_epoch != partition.leader_epoch:
            return False
        if not await self._announce(partition, in_sync, wanted):
            return False
        logger.info("%s: in-sync replicas %s -> %s", partition.name, in_sync.isr, wanted)
        change = StateChange(partition.topic, partition.index, before, before._replace(isr=wanted))
        await self._joined.make(change)
        self._metrics.isr_shrinks_total += len(set(before.isr) - set(wanted))
        self._metrics.isr_expands_total += len(set(wanted) - set(before.isr))
        return True

    async def _announce(
        self, partition: Partition, in_sync: InSyncReplicas, wanted: tuple[int, ...]
    ) -> bool:
        """Makes newcomers that have just been found to have caught up count from now on.

        While the coordinator is asked, nothing that they lack may be committed. False: they must
        not join after all, or another broker leads.
        """
        pending, is_sure = in_sync.pending, False
        in_sync.begin_change(wanted)
        try:
            is_sure = await self._are_registered(in_sync, wanted)
        finally:
            if not is_sure:
                in_sync.take_back_change(pending)
                partition.advance_high_watermark()
        return is_sure and in_sync is partition.in_sync

    async def _are_registered(self, in_sync: InSyncReplicas, wanted: tuple[int, ...]) -> bool:
        """Whether the newcomers have caught up under the broker epochs that are registered.

        Asked after the state was read: a broker epoch that ended since is followed by one that either
        kept all that it had, or has changed the state (`broker/cluster/withdrawal.py`), so that the
        write fails. The last notification of brokers may be older than the state.
        """
        caught_up = {one: in_sync.broker_epoch(one) for one in wanted if one not in in_sync.isr}
        for broker_id, broker_epoch in caught_up.items():
            if await self._epochs.read(broker_id) != broker_epoch:
                return False
        return True

    def end(self) -> None:
        """Starts no more changes."""
        self._has_ended = True

    async def close(self) -> None:
        """Gives up what is under way: it may or may not land."""
        self.end()
        changes = list(self._changes.values())
        for change in changes:
            change.cancel()
        await self._joined.close()
        await asyncio.gather(*changes, return_exceptions=True)
