"""The consumer groups that this broker coordinates: those of the partitions of `__consumer_offsets` it leads.

Handlers `ask` about a group; a group that another broker coordinates is answered NOT_COORDINATOR. Forgets what no one
needs any more: expired offsets, now and then, and the offsets of a topic when it is deleted.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from echoless.broker.config.loading import Config
from echoless.broker.essential_task import reported_task
from echoless.broker.groups.cluster_topics import ClusterTopics
from echoless.broker.metadata.topic import TopicDeleted, TopicEvent
from echoless.broker.network.turns import work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.shards import Shards
from echoless.broker.state_topics.topic import StateTopic
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.state_records.partitioner import NAME_LENGTH_MAX

if TYPE_CHECKING:
    from echoless.broker.groups.shard import GroupShard
    from echoless.broker.state_topics.append_parts import AppendParts
    from echoless.broker.state_topics.held_requests import Answered
    from echoless.coordinators.events import Now
    from echoless.coordinators.groups.answers import CommittedOffset, GroupAnswer, ListedGroup
    from echoless.coordinators.groups.coordinator import GroupCoordinator
    from echoless.coordinators.groups.effects import Effects
    from echoless.coordinators.groups.requests import GroupRequest


class GroupService(Shards["GroupShard"]):
    """The groups of one broker. Belongs to the event loop."""

    def __init__(
        self,
        config: Config,
        topic: StateTopic,
        appends: AppendParts,
        *,
        topics: ClusterTopics,
        new_uuid: Callable[[], uuid.UUID],
        expiry_ms: Callable[[], int],
    ) -> None:
        """`expiry_ms`: the clock that deletes (`Clock.deletion_ms`)."""
        super().__init__(topic)
        self._topics = topics
        self._new_uuid = new_uuid
        self._expiry_ms = expiry_ms
        self._config = config
        self._appends = appends
        self._rebalances_before = 0
        """Rebalances completed by coordinators that have ended."""
        self._forgetting: set[asyncio.Task[None]] = set()

    # --- requests ---

    def coordinator_of(self, name: str) -> int:
        """The broker that coordinates the group.

        Raises `KafkaError` COORDINATOR_NOT_AVAILABLE, INVALID_GROUP_ID.
        """
        if len(name) > NAME_LENGTH_MAX:
            message = f"a group id has at most {NAME_LENGTH_MAX} characters"
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, message)
        return super().coordinator_of(name)

    def ask(self, request: GroupRequest) -> Answered[GroupAnswer]:
        """Has the group's coordinator process the request."""
        name = request.group_id
        shard = self.shard_of(name) if len(name) <= NAME_LENGTH_MAX else None
        return _refused(request) if shard is None else shard.ask(request)

    def topic_names(self, topic_ids: Collection[bytes]) -> dict[bytes, str]:
        """The names of these topics, by id; those that were deleted have none."""
        return self._topics.names_of(topic_ids)

    def new_member_uuid(self) -> str:
        """A random UUID, with which the id of a new member ends."""
        return str(self._new_uuid())

    async def settle_offsets(self, partition: Partition, next_offset: int) -> ErrorCode:
        """Returns NONE once the groups show what transactions have committed below this offset, which is committed.

        NOT_LEADER_OR_FOLLOWER if they cannot, or another broker has to: the marker is sent again.
        """
        shard = self.shards.get(partition.index)
        if shard is not None and shard.partition is partition and await shard.settled(next_offset):
            return ErrorCode.NONE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- figures ---

    def listed(
        self, states: Collection[str], types: Collection[str]
    ) -> Iterator[ListedGroup | None]:
        """The groups that this broker knows; None for one that the filters leave out."""
        for coordinator in self._serving():
            yield from coordinator.listed(states, types)

    def committed(self) -> Iterator[CommittedOffset]:
        """The committed offsets of all groups, for a caller that takes turns."""
        for coordinator in self._serving():
            yield from coordinator.committed()

    @property
    def member_count(self) -> int:
        """Members of all groups."""
        return sum(one.member_count for one in self._serving())

    @property
    def rebalances_completed(self) -> int:
        """Rebalances since the start of the broker, those of groups that others coordinate by now included."""
        now = sum(one.rebalances_completed for one in self._serving())
        return self._rebalances_before + now

    def _serving(self) -> Iterator[GroupCoordinator]:
        """The coordinators, for a caller that may take turns: those that serve when theirs comes."""
        for shard in list(self.shards.values()):
            if shard.coordinator is not None:
                yield shard.coordinator

    # --- shards ---

    def new_shard(self, partition: Partition) -> GroupShard:
        from echoless.broker.groups.shard import GroupShard, GroupShardParts

        parts = GroupShardParts(self._new_coordinator, self._appends, self.reload, self._topics)
        return GroupShard(partition, parts)

    def shard_ended(self, shard: GroupShard) -> None:
        if shard.coordinator is not None:
            self._rebalances_before += shard.coordinator.rebalances_completed

    def _new_coordinator(self) -> GroupCoordinator:
        from echoless.broker.groups.new_coordinator import new_coordinator

        return new_coordinator(self._config, self._topics, self._serving)

    # --- forgetting ---

    async def run(self) -> None:
        """Forgets expired offsets now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for shard in list(self.shards.values()):
                await work_in_turns(shard.perform_in_turn(self._expired_offsets))

    def _expired_offsets(self, coordinator: GroupCoordinator, now: Now) -> Iterator[Effects]:
        """Expires what is old by the clock that deletes, whatever the machine's clock shows."""
        return coordinator.expire_offsets(now._replace(wall_ms=self._expiry_ms()))

    def on_topic_event(self, event: TopicEvent) -> None:
        """Counts changes of topics, and forgets the offsets of one that was deleted."""
        self._topics.on_topic_event(event)
        if isinstance(event, TopicDeleted) and self.shards:
            from echoless.broker.groups.deleted_topics import forget

            name = event.topic.name
            work = forget(name, self._appends.wall_ms(), self.shards)
            task = reported_task(work, f"forgetting the offsets of {name}")
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def close(self) -> None:
        """Stops coordinating."""
        await super().close()
        tasks = list(self._forgetting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _refused(request: GroupRequest) -> GroupAnswer:
    """The answer of a broker that does not coordinate the group."""
    from echoless.coordinators.groups.answers import refusal
    from echoless.coordinators.groups.group_ids import group_id_error

    return refusal(request, group_id_error(request) or ErrorCode.NOT_COORDINATOR)
