"""The consumer groups that this broker coordinates: those of the partitions of `__consumer_offsets` it leads.

A `RoleListener`: a shard begins with each leadership and ends with it. Handlers `ask` about a group; a group that
another broker coordinates is answered NOT_COORDINATOR. Forgets what no one needs any more: expired offsets, now
and then, and the offsets of a topic when it is deleted. What a shard needs is imported with the first one: a broker
without groups does without, and so does its start.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.config.loading import Config
from echoless.broker.essential_task import reported_task
from echoless.broker.groups.cluster_topics import ClusterTopics
from echoless.broker.metadata.topic import TopicDeleted, TopicEvent
from echoless.broker.network.turns import work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.topic import StateTopic
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.state_records.partitioner import NAME_LENGTH_MAX, partition_of

if TYPE_CHECKING:
    from echoless.broker.groups.held_requests import Answered
    from echoless.broker.groups.shard import Shard, ShardParts, Unserved
    from echoless.broker.state_topics.append_parts import AppendParts
    from echoless.coordinators.events import Now
    from echoless.coordinators.groups.answers import CommittedOffset, ListedGroup
    from echoless.coordinators.groups.coordinator import GroupCoordinator
    from echoless.coordinators.groups.deleted_topic import DeletedTopic
    from echoless.coordinators.groups.effects import GroupEffect
    from echoless.coordinators.groups.requests import GroupRequest
    from echoless.coordinators.groups.usage import Usage

FORGET_AGAIN_S: Final = 1.0
"""First pause before a shard is asked again to forget a deleted topic; each is twice as long as the one before."""
_FORGET_AGAIN_MAX_S: Final = 60.0


class Groups:
    """The shards of one broker. Belongs to the event loop."""

    def __init__(
        self,
        config: Config,
        topic: StateTopic,
        appends: AppendParts,
        *,
        topics: ClusterTopics,
        new_uuid: Callable[[], uuid.UUID],
    ) -> None:
        self.topic = topic
        self._topics = topics
        self._new_uuid = new_uuid
        self.shards: dict[int, Shard] = {}
        """By partition."""
        self._config = config
        self._appends = appends
        self._rebalances_before = 0
        """Those of coordinators that have ended."""
        self._forgetting: set[asyncio.Task[None]] = set()

    def coordinator_of(self, group_id: str) -> int:
        """The broker that coordinates the group.

        Raises `KafkaError` COORDINATOR_NOT_AVAILABLE, INVALID_GROUP_ID.
        """
        if len(group_id) > NAME_LENGTH_MAX:
            message = f"a group id has at most {NAME_LENGTH_MAX} characters"
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, message)
        count = self.topic.partition_count
        if count is None:
            name = self.topic.name
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no {name} yet")
        return self.topic.leader_of(partition_of(group_id, count))

    def readiness(self) -> ErrorCode:
        """COORDINATOR_LOAD_IN_PROGRESS while not all groups of this broker are known."""
        if not self.shards:
            return ErrorCode.NONE
        from echoless.broker.groups.shard import ShardState

        states = {shard.state for shard in self.shards.values()}
        if ShardState.LOADING in states:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if ShardState.FAILED in states:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def unserved(self) -> list[Unserved]:
        """The partitions whose groups this broker should serve and does not."""
        found = [shard.unserved for _, shard in sorted(self.shards.items())]
        return [one for one in found if one is not None]

    def listed(
        self, states: Collection[str], types: Collection[str]
    ) -> Iterator[ListedGroup | None]:
        """The groups that this broker knows; None for one that the filters leave out."""
        for shard in list(self.shards.values()):
            if shard.coordinator is not None:
                yield from shard.coordinator.listed(states, types)

    def committed(self) -> Iterator[CommittedOffset]:
        """The committed offsets of all groups, for a caller that takes turns."""
        for shard in list(self.shards.values()):
            if shard.coordinator is not None:
                yield from shard.coordinator.committed()

    @property
    def member_count(self) -> int:
        """Members of all groups."""
        return sum(one.member_count for one in self._coordinators())

    @property
    def rebalances_completed(self) -> int:
        """Since the start of the broker, those of groups that others coordinate by now included."""
        now = sum(one.rebalances_completed for one in self._coordinators())
        return self._rebalances_before + now

    def _coordinators(self) -> list[GroupCoordinator]:
        coordinators = [shard.coordinator for shard in self.shards.values()]
        return [one for one in coordinators if one is not None]

    def ask(self, request: GroupRequest) -> Answered:
        """Has the group's coordinator process the request."""
        from echoless.coordinators.groups.group_ids import group_id_error

        code = group_id_error(request)
        if code is ErrorCode.NONE:
            shard = self.shard_of(request.group_id)
            if shard is not None:
                return shard.ask(request)
            code = ErrorCode.NOT_COORDINATOR
        from echoless.coordinators.groups.answers import refusal

        return refusal(request, code)

    def shard_of(self, group_id: str) -> Shard | None:
        """The shard of the group; None if another broker coordinates it."""
        count = self.topic.partition_count
        return None if count is None else self.shards.get(partition_of(group_id, count))

    def topic_names(self, topic_ids: Collection[bytes]) -> dict[bytes, str]:
        """The names of these topics, by id; those that were deleted have none."""
        return self._topics.names_of(topic_ids)

    def new_member_uuid(self) -> str:
        """For the id of a new member."""
        return str(self._new_uuid())

    # --- roles ---

    def led(self, partition: Partition, epoch: int) -> None:  # noqa: ARG002 - the partition knows it
        """Begins to coordinate the groups of the partition."""
        if partition.topic == CONSUMER_OFFSETS:
            self._begin(partition)

    def lost(self, partition: Partition) -> None:
        """Coordinates the groups of the partition no longer."""
        if partition.topic == CONSUMER_OFFSETS:
            self._end(partition.index)

    def _begin(self, partition: Partition) -> None:
        from echoless.broker.groups.shard import Shard

        self._end(partition.index)
        self.shards[partition.index] = Shard(partition, self._shard_parts())

    def _end(self, index: int) -> None:
        shard = self.shards.pop(index, None)
        if shard is not None:
            if shard.coordinator is not None:
                self._rebalances_before += shard.coordinator.rebalances_completed
            shard.lose()

    def _reload(self, shard: Shard) -> None:
        if self.shards.get(shard.partition.index) is shard:
            self._begin(shard.partition)

    def _shard_parts(self) -> ShardParts:
        from echoless.broker.groups.shard import ShardParts

        return ShardParts(self._new_coordinator, self._appends, self._reload, self._topics)

    def _new_coordinator(self) -> GroupCoordinator:
        from echoless.coordinators.groups.config import GroupCoordinatorConfig
        from echoless.coordinators.groups.coordinator import GroupCoordinator

        config = self._config
        group_config = GroupCoordinatorConfig(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_max_size=config.group_max_size,
            group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            group_consumer_max_size=config.group_consumer_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        )
        return GroupCoordinator(group_config, self._usage, self._topics)

    def _usage(self) -> Usage:
        """Adds up what all coordinators of this broker hold."""
        from echoless.coordinators.groups.usage import total

        return total([one.usage for one in self._coordinators()])

    # --- forgetting ---

    async def run(self) -> None:
        """Forgets expired offsets now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            await self._drive(lambda coordinator, now: coordinator.expire_offsets(now))

    def on_topic_event(self, event: TopicEvent) -> None:
        """Counts changes of topics, and forgets the offsets of one that was deleted."""
        self._topics.on_topic_event(event)
        if isinstance(event, TopicDeleted) and self.shards:
            name = event.topic.name
            work = self._forget(name, self._appends.wall_ms())
            task = reported_task(work, f"forgetting the offsets of {name}")
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _forget(self, name: str, deleted_ms: int) -> None:
        """Forgets the offsets of a topic in all shards: those that are loading once they serve, failures again."""
        from echoless.coordinators.groups.deleted_topic import DeletedTopic

        topics: dict[Shard, DeletedTopic] = {}
        pause_s = FORGET_AGAIN_S
        while True:
            for shard in list(self.shards.values()):
                topic = topics.setdefault(shard, DeletedTopic(name, deleted_ms))
                if not topic.is_forgotten:
                    await _forget_in(shard, topic)
            if all(_is_done(shard, topics.get(shard)) for shard in self.shards.values()):
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _FORGET_AGAIN_MAX_S)

    async def _drive(
        self, effects_of: Callable[[GroupCoordinator, Now], Iterator[list[GroupEffect]]]
    ) -> None:
        for shard in list(self.shards.values()):
            await work_in_turns(shard.perform_in_turn(effects_of))

    async def close(self) -> None:
        """Coordinates nothing any more."""
        for index in list(self.shards):
            self._end(index)
        tasks = list(self._forgetting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forget_in(shard: Shard, topic: DeletedTopic) -> None:
    await work_in_turns(
        shard.perform_in_turn(lambda coordinator, _now: coordinator.forget_topic(topic))
    )


def _is_done(shard: Shard, topic: DeletedTopic | None) -> bool:
    """Whether nothing is left to forget in the shard. One that cannot be loaded forgets nothing."""
    from echoless.broker.groups.shard import ShardState

    return shard.state is ShardState.FAILED or (topic is not None and topic.is_forgotten)
