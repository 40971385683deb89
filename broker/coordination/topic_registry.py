"""The topics of the cluster: their rules, their changes, and a view of them in memory.

Every change is checked, then written to the node tree by conditional operations, then published: the
view is replaced and the listeners are called in the same step of the event loop. So the view never
shows what is not durable, and a listener sees each topic whole. A change that loses a race is decided
again on what is there now.

Errors are `KafkaError`s with Kafka's codes. Configuration values are the caller's to validate
(`broker/topic_config.py`). Called by the handlers of the topic APIs and by the server at its start.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from broker.coordination import topic_nodes
from broker.coordination.leadership import claim, initial_state
from broker.coordination.lost_replies import commit
from broker.coordination.node_data import (
    BROKERS,
    encode_uuid,
    topic_config_path,
)
from broker.coordination.node_tree import (
    Cancel,
    ConnectionLostError,
    MultiFailedError,
    NodeTree,
)
from broker.coordination.replica_assignment import assign_replicas, check_assignment
from broker.coordination.topic import NO_NODE, NewTopic, Topic
from broker.coordination.topic_names import check_collision, check_topic_name
from broker.coordination.topic_view import TopicListener, TopicView
from protocol.errors import ErrorCode, KafkaError

LOST_RACES_MAX: Final = 10
"""In one change, before it is given up."""

T = TypeVar("T")
ExplicitAssignment = Mapping[int, tuple[int, ...]]
Config = Mapping[str, str]


class TopicRegistry:
    """All topics. Used from one event loop."""

    def __init__(
        self, tree: NodeTree, *, rng: Random, new_uuid: Callable[[], uuid.UUID] = uuid.uuid4
    ) -> None:
        self._tree = tree
        self._rng = rng
        self._new_uuid = new_uuid
        self._view = TopicView()
        self.topics = self._view.topics
        """By name; for everybody else to read only."""
        self.topics_by_id = self._view.topics_by_id
        """The same topics."""
        self._turn = asyncio.Lock()
        """Held during a change, so that this broker never races with itself."""

    def listen(self, listener: TopicListener) -> Cancel:
        """Calls `listener` at every event from now on; it must not block or raise."""
        return self._view.listen(listener)

    async def load(self) -> None:
        """Brings the view up to date with the tree, after completing what a crash left undone.

        Raises `CoordinationError`, for a node that cannot be read too.
        """
        async with self._turn:
            await topic_nodes.ensure_topic_paths(self._tree)
            await topic_nodes.finish_deletions(self._tree)
            await self._refresh()

    async def claim_leadership(self, broker_id: int) -> None:
        """Makes the broker the leader of all it may lead, each in a new epoch.

        For a broker that stands alone, after `load`. Partitions that were never led get their first
        state. Raises `CoordinationError`.
        """
        await self._decide_until_won(lambda: self._claim(broker_id))

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """The topic, as it is or (`validate_only`) would be.

        Raises `KafkaError` TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
        """
        return await self._change(lambda: self._create(new, validate_only))

    async def delete_topic(self, name: str) -> Topic:
        """The topic that was. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
        return await self._change(lambda: self._delete(name))

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignment: ExplicitAssignment | None = None,
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Extends the topic to `count` partitions; `assignment` is for the new ones.

        Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
        """
        return await self._change(lambda: self._extend(name, count, assignment, validate_only))

    async def set_topic_config(self, name: str, config: Config) -> Topic:
        """Replaces all overrides. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
        return await self.alter_topic_config(name, lambda _: config)

    async def alter_topic_config(self, name: str, alter: Callable[[Config], Config]) -> Topic:
        """Replaces the overrides by what `alter` makes of them; what it raises ends the change.

        `alter` is called again after a lost race, so no concurrent change is overwritten. Raises
        `KafkaError` UNKNOWN_TOPIC_OR_PARTITION.
        """
        return await self._change(lambda: self._configure(name, alter))

    async def _change(self, change: Callable[[], Awaitable[T]]) -> T:
        """A change that a client asks for: where nobody knows its outcome, the client is told so."""
        try:
            return await self._decide_until_won(change)
        except (ConnectionLostError, MultiFailedError) as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"it is not known whether the change was made: {error}"
            ) from error

    async def _decide_until_won(self, change: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            for _ in range(LOST_RACES_MAX):
                try:
                    return await change()
                except MultiFailedError:
                    await self._refresh()
            return await change()

    async def _refresh(self) -> None:
        names = await topic_nodes.read_topic_names(self._tree)
        found = await topic_nodes.read_topics(self._tree, names)
        for name in {**self.topics, **found}:
            self._view.publish(name, found.get(name))

    async def _create(self, new: NewTopic, validate_only: bool) -> Topic:
        check_topic_name(new.name)
        if new.name in self.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {new.name!r} already exists")
        check_collision(new.name, self.topics)
        broker_ids = await self._broker_ids()
        if new.assignment is None:
            factor, partitions = new.replication_factor, range(new.partitions)
            assignment = assign_replicas(broker_ids, partitions, factor, self._rng)
        else:
            partitions = range(len(new.assignment))
            assignment = check_assignment(new.assignment, partitions, broker_ids)
        topic = Topic(
            name=new.name,
            topic_id=self._new_topic_id(),
            assignment=assignment,
            states={partition: initial_state(assignment[partition]) for partition in assignment},
            config=dict(new.config),
        )
        if validate_only:
            return topic
        # Kafka leaves configurations behind and lets them be set before the topic is there.
        config_node = (await self._tree.read_many([topic_config_path(new.name)]))[0]
        topic = replace(topic, config_version=config_node.version if config_node else NO_NODE)
        await topic_nodes.commit_in_chunks(self._tree, topic_nodes.create_operations(topic))
        return self._publish(replace(topic, config_version=topic.config_version + 1))

    async def _delete(self, name: str) -> Topic:
        topic = self._existing(name)
        await topic_nodes.delete_topic_nodes(self._tree, topic)
        self._view.publish(name, None)
        return topic

    async def _extend(
        self, name: str, count: int, explicit: ExplicitAssignment | None, validate_only: bool
    ) -> Topic:
        before = self._existing(name)
        if count <= before.partition_count:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {before.partition_count} partitions, "
                f"which cannot become {count}",
            )
        partitions = range(before.partition_count, count)
        broker_ids, factor = await self._broker_ids(), before.replication_factor
        if explicit is None:
            added = assign_replicas(broker_ids, partitions, factor, self._rng)
        else:
            added = check_assignment(explicit, partitions, broker_ids, factor)
        states = {partition: initial_state(added[partition]) for partition in added}
        after = replace(
            before,
            assignment={**before.assignment, **added},
            states={**before.states, **states},
            node_version=before.node_version + 1,
        )
        if validate_only:
            return after
        operations = topic_nodes.extend_operations(before, after)
        await topic_nodes.commit_in_chunks(self._tree, operations)
        return self._publish(after)

    async def _configure(self, name: str, alter: Callable[[Config], Config]) -> Topic:
        before = self._existing(name)
        after = replace(before, config=dict(alter(before.config)))
        await commit(self._tree, [topic_nodes.config_operation(after)])
        return self._publish(replace(after, config_version=before.config_version + 1))

    async def _claim(self, broker_id: int) -> None:
        pairs = [(topic, claim(topic, broker_id)) for topic in self.topics.values()]
        for before, after in pairs:
            await topic_nodes.ensure_partition_paths(self._tree, before, after)
        operations = [
            operation
            for before, after in pairs
            for operation in topic_nodes.state_operations(before, after)
        ]
        await topic_nodes.commit_in_chunks(self._tree, operations)
        for _, after in pairs:
            self._publish(after)

    async def _broker_ids(self) -> list[int]:
        """Who is alive, and so may get replicas."""
        return [int(name) for name in await self._tree.children(BROKERS)]

    def _new_topic_id(self) -> uuid.UUID:
        """Kafka avoids a leading dash, which command lines would take for an option."""
        while encode_uuid(topic_id := self._new_uuid()).startswith("-"):
            pass
        return topic_id

    def _existing(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _publish(self, topic: Topic) -> Topic:
        self._view.publish(topic.name, topic)
        return topic
