"""The shards of one internal topic on this broker: one for each of its partitions that the broker leads.

A `RoleListener`: a shard begins with each leadership and ends with it. What is kept in the topic is known by the
subclass, `broker/groups/service.py` for instance. It imports what a shard needs with the first one: a broker without
such state does without, and so does its start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.shard_state import ShardState, Unserved
from echoless.broker.state_topics.topic import StateTopic
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.state_records.partitioner import partition_of

if TYPE_CHECKING:
    from echoless.broker.state_topics.shard import Shard

OneShard = TypeVar("OneShard", bound="Shard[Any, Any, Any]")


class Shards(ABC, Generic[OneShard]):
    """The shards of one topic. Belongs to the event loop."""

    def __init__(self, topic: StateTopic) -> None:
        self.topic = topic
        self.shards: dict[int, OneShard] = {}
        """Shards by partition."""

    @abstractmethod
    def new_shard(self, partition: Partition) -> OneShard:
        """Begins a shard."""

    def shard_ended(self, shard: OneShard) -> None:
        """Called before a shard is dropped, with its coordinator if it has served."""

    # --- what is asked about them ---

    def coordinator_of(self, name: str) -> int:
        """The broker that coordinates what has this name. Raises `KafkaError` COORDINATOR_NOT_AVAILABLE."""
        count = self.topic.partition_count
        if count is None:
            message = f"there is no {self.topic.name} yet"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return self.topic.leader_of(partition_of(name, count))

    def shard_of(self, name: str) -> OneShard | None:
        """The shard of what has this name; None if another broker coordinates it."""
        count = self.topic.partition_count
        return None if count is None else self.shards.get(partition_of(name, count))

    def readiness(self) -> ErrorCode:
        """COORDINATOR_LOAD_IN_PROGRESS while not all state of this broker is known."""
        states = {shard.state for shard in self.shards.values()}
        if ShardState.LOADING in states:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if ShardState.FAILED in states:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def unserved(self) -> list[Unserved]:
        """The partitions whose state this broker should serve and does not."""
        found = [shard.unserved for _, shard in sorted(self.shards.items())]
        return [one for one in found if one is not None]

    # --- roles ---

    def led(self, partition: Partition, epoch: int) -> None:  # noqa: ARG002 - the partition knows it
        """Begins to coordinate what the partition keeps."""
        if partition.topic == self.topic.name:
            self._begin(partition)

    def lost(self, partition: Partition) -> None:
        """Stops coordinating what the partition keeps."""
        if partition.topic == self.topic.name:
            self._end(partition.index)

    def reload(self, shard: OneShard) -> None:
        """Replaces a shard whose state is in doubt, unless another has taken its place."""
        if self.shards.get(shard.partition.index) is shard:
            self._begin(shard.partition)

    def _begin(self, partition: Partition) -> None:
        self._end(partition.index)
        self.shards[partition.index] = self.new_shard(partition)

    def _end(self, index: int) -> None:
        shard = self.shards.pop(index, None)
        if shard is not None:
            self.shard_ended(shard)
            shard.lose()

    async def close(self) -> None:
        """Ends all shards."""
        for index in list(self.shards):
            self._end(index)
