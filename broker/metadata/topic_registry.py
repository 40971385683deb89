"""The topics of the cluster: their rules, their changes, and a view of them in memory.

Every change is checked, then written to the node tree by conditional operations, then published: the
view is replaced and the listeners are called in the same step of the event loop. So the view never
shows what is not durable, and a listener sees each topic whole. A change that loses a race is decided
again on what is there now. `follow` reads what others have changed, in turn with the changes made here.

Invariant: the view of a topic never moves back; node versions grow as long as its id stays.

Errors are `KafkaError`s with Kafka's codes. Configuration values are the caller's to validate
(`broker/config/topic.py`). Called by the handlers of the topic APIs, by the server at its start,
by the leaders of partitions (ISR) and by the controller.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from random import Random
from typing import Final, TypeVar

from echoless.broker.metadata import predecessors, topic_nodes
from echoless.broker.metadata.leadership import claim
from echoless.broker.metadata.node_data import (
    encode_uuid,
    partition_state_path,
    topic_config_path,
)
from echoless.broker.metadata.registration import read_brokers
from echoless.broker.metadata.topic import NO_NODE, NewTopic, Relocation, StateChange, Topic
from echoless.broker.metadata.topic_changes import extended, new_topic, reassigned, with_states
from echoless.broker.metadata.topic_follower import TopicFollower
from echoless.broker.metadata.topic_names import check_collision, check_topic_name
from echoless.broker.metadata.topic_view import TopicListener, TopicView
from echoless.broker.tree.lost_replies import commit
from echoless.broker.tree.node_tree import (
    BadVersionError,
    Cancel,
    Check,
    ConnectionLostError,
    MultiFailedError,
    NodeTree,
    Operation,
)
from echoless.protocol.errors import ErrorCode, KafkaError

__all__ = ["StateChange", "TopicRegistry"]

LOST_RACES_MAX: Final = 10
"""In one change, before it is given up."""

T = TypeVar("T")
ExplicitAssignment = Mapping[int, tuple[int, ...]]
Config = Mapping[str, str]
DecideRelocations = Callable[[Topic], Awaitable[Mapping[int, Relocation]]]
"""The partitions of a topic that get other replicas, decided on the topic as it is."""


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
        """Topics by name; read-only for everyone else."""
        self.topics_by_id = self._view.topics_by_id
        """The same topics."""
        self.deleted: dict[str, uuid.UUID] = {}
        """Topics whose deletion was cut short before `load`: their logs were deleted on purpose."""
        # Invariant: a topic is not taken for deleted by a tree that is older than what was claimed in it.
        self.check_tree: Callable[[], Awaitable[None]] = _trust
        """Raises `CoordinationError` if the tree is an older copy; asked before a topic is taken for deleted."""
        self._turn = asyncio.Lock()
        """Held during a change, so that this broker never races with itself."""
        self._follower: TopicFollower | None = None
        self._deletions = 0
        """Topics deleted by this object."""

    def listen(self, listener: TopicListener) -> Cancel:
        """Calls `listener` at every event from now on; it must not block or raise."""
        return self._view.listen(listener)

    async def load(self) -> None:
        """Brings the view up to date with the tree, after completing what a crash left undone.

        Raises `CoordinationError`, for a node that cannot be read too.
        """
        async with self._turn:
            await topic_nodes.ensure_topic_paths(self._tree)
            self.deleted |= await topic_nodes.finish_deletions(self._tree)
            await predecessors.forget_surplus(self._tree)
            await self._refresh()

    async def follow(self) -> None:
        """Keeps the view up to date from now on, until `close`; to be called after `load`.

        Raises `CoordinationError`.
        """
        self._follower = TopicFollower(
            self._tree, self._view, self._refresh_in_turn, self._refresh_parts_in_turn
        )
        await self._follower.start()

    async def close(self) -> None:
        """Stops following; the view stays as it is."""
        if self._follower is not None:
            await self._follower.close()

    async def claim_leadership(self, broker_id: int) -> None:
        """Makes the broker the leader of all it may lead, each in a new epoch.

        For a broker that stands alone, after `load`. Partitions that were never led get their first
        state. Raises `CoordinationError`.
        """
        await self._decide_until_won(lambda: self._claim(broker_id))

    async def change_states(
        self, changes: Sequence[StateChange], checks: Sequence[Check] = ()
    ) -> None:
        """Writes states, each if it still is what it was `before`, and only while the checks hold.

        Many changes are several atomic operations, in order; those before a failed one are made. Raises
        `MultiFailedError` after a lost race, with the view up to date again; `ConnectionLostError` when
        the outcome is unknown, and the view follows when the connection is back.
        """
        async with self._turn:
            for start in range(0, len(changes), topic_nodes.STATE_CHANGES_MAX):
                chunk = changes[start : start + topic_nodes.STATE_CHANGES_MAX]
                await self._change_states(chunk, checks)

    async def change_assignments(
        self, name: str, decide: DecideRelocations, checks: Sequence[Check] = ()
    ) -> Topic:
        """Gives partitions of a topic other replicas, in one atomic write however many they are.

        `decide` is awaited in turn, with the topic as it is; what it raises ends the change, and if it returns nothing,
        nothing is written. At most `RELOCATIONS_MAX` of the partitions it returns may be moving already. Raises
        `KafkaError` UNKNOWN_TOPIC_OR_PARTITION, and as `change_states`.
        """
        async with self._turn:
            before = self._existing(name)
            relocations = await decide(before)
            if not relocations:
                return before
            after = reassigned(before, relocations)
            bases = topic_nodes.bases_of(before, relocations)
            operation = topic_nodes.assignment_operation(before, after)
            identity = topic_nodes.identity_checks(before)
            await self._commit(
                [*checks, *identity, *bases.values(), operation], {name: bases.keys()}
            )
            return self._publish(after)

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """The topic, as it is or (`validate_only`) would be.

        Raises `KafkaError` TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
        """
        return await self._change(new.name, lambda: self._create(new, validate_only))

    async def delete_topic(self, name: str) -> Topic:
        """Deletes a topic, durably, and returns what it was; `finish_deletion` deletes its last nodes.

        Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION.
        """
        return await self._change(name, lambda: self._delete(name))

    async def finish_deletion(self, topic: Topic) -> None:
        """Deletes the nodes that `delete_topic` left; other changes may be made in between.

        Call it when the logs have left their names: until then a restart has to know that they were deleted
        on purpose. Raises `CoordinationError`; `load` completes it.
        """
        is_left = True
        while is_left:
            async with self._turn:
                found = await topic_nodes.read_deletion(self._tree, topic.name)
                is_left = found == topic.topic_id and await topic_nodes.continue_deletion(
                    self._tree, topic.name
                )

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
        return await self._change(
            name, lambda: self._extend(name, count, assignment, validate_only)
        )

    async def set_topic_config(self, name: str, config: Config) -> Topic:
        """Replaces all overrides. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
        return await self.alter_topic_config(name, lambda _: config)

    async def alter_topic_config(self, name: str, alter: Callable[[Config], Config]) -> Topic:
        """Replaces the overrides by what `alter` makes of them; what it raises ends the change.

        `alter` is called again after a lost race, so no concurrent change is overwritten. Raises
        `KafkaError` UNKNOWN_TOPIC_OR_PARTITION.
        """
        return await self._change(name, lambda: self._configure(name, alter))

    async def _change(self, name: str, change: Callable[[], Awaitable[T]]) -> T:
        """Makes a change for a client, which gets an error that says so if the outcome is unknown."""
        try:
            return await self._decide_until_won(change, [name])
        except (ConnectionLostError, MultiFailedError) as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"it is not known whether the change was made: {error}"
            ) from error

    async def _decide_until_won(
        self, change: Callable[[], Awaitable[T]], names: Sequence[str] | None = None
    ) -> T:
        """`names`: the topics that it is about; None: all."""
        async with self._turn:
            for _ in range(LOST_RACES_MAX):
                try:
                    return await change()
                except MultiFailedError:
                    await self._refresh(names)
            return await change()

    async def _refresh_in_turn(self, names: Sequence[str]) -> None:
        async with self._turn:
            await self._refresh(names)

    async def _refresh_parts_in_turn(
        self, partitions: Mapping[str, Collection[int]], reassigned: Collection[str]
    ) -> set[str]:
        async with self._turn:
            return await self._refresh_parts(partitions, reassigned)

    async def _refresh_parts(
        self, partitions: Mapping[str, Collection[int]], reassigned: Collection[str]
    ) -> set[str]:
        """Reads states of single partitions, and assignments; returns the topics that have to be read as a whole."""
        names = partitions.keys() | set(reassigned)
        known = {name: self.topics[name] for name in sorted(names) if name in self.topics}
        found = await topic_nodes.read_parts(self._tree, known, partitions, reassigned)
        for topic in found.values():
            self._publish(topic)
        return names - found.keys()

    async def _refresh(self, names: Sequence[str] | None = None) -> None:
        """Reads these topics (None: all) and publishes what is new."""
        if names is None:
            names = list(
                dict.fromkeys([*self.topics, *await topic_nodes.read_topic_names(self._tree)])
            )
        found = await topic_nodes.read_topics(self._tree, names)
        if any(_is_gone(self.topics.get(name), found.get(name)) for name in names):
            await self.check_tree()
        for name in names:
            topic = found.get(name)
            known = self.topics.get(name)
            self._view.publish(name, None if topic is None else topic.at_least_as_new_as(known))

    async def _change_states(self, changes: Sequence[StateChange], checks: Sequence[Check]) -> None:
        of_topic: dict[str, list[StateChange]] = {}
        for index, change in enumerate(changes):
            self._check_still_known(index, change)
            of_topic.setdefault(change.topic, []).append(change)
        topics = [self.topics[name] for name in of_topic]
        operations = await topic_nodes.state_change_operations(self._tree, changes)
        identities = [check for topic in topics for check in topic_nodes.identity_checks(topic)]
        concerned = {name: [one.partition for one in some] for name, some in of_topic.items()}
        await self._commit([*checks, *identities, *operations], concerned)
        for topic in topics:
            self._publish(with_states(topic, of_topic[topic.name]))

    def _check_still_known(self, index: int, change: StateChange) -> None:
        """Raises `MultiFailedError` if the decision's basis has changed: the race is lost."""
        topic = self.topics.get(change.topic)
        if topic is None or topic.states.get(change.partition) != change.before:
            path = partition_state_path(change.topic, change.partition)
            raise MultiFailedError(
                index, BadVersionError(path, "has changed since it was decided on")
            )

    async def _commit(
        self, operations: Sequence[Operation], concerned: Mapping[str, Collection[int]]
    ) -> None:
        """All operations or none; after a lost race the assignments of these topics and the states concerned are read again."""
        try:
            await commit(self._tree, operations)
        except MultiFailedError:
            left = await self._refresh_parts(concerned, concerned)
            if left:
                await self._refresh(sorted(left))
            raise

    async def _create(self, new: NewTopic, validate_only: bool) -> Topic:
        check_topic_name(new.name)
        if new.name in self.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {new.name!r} already exists")
        check_collision(new.name, self.topics)
        brokers = await read_brokers(self._tree)
        topic = new_topic(new, self._new_topic_id(), brokers, self._rng)
        if validate_only:
            return topic
        await asyncio.sleep(0)  # it took milliseconds if there are thousands of partitions
        await topic_nodes.finish_deletion(self._tree, new.name)
        # Kafka leaves configurations behind and lets them be set before the topic is there.
        config_node = (await self._tree.read_many([topic_config_path(new.name)]))[0]
        taken = await predecessors.take(self._tree, new.name)
        topic = topic._replace(
            config_version=config_node.version if config_node else NO_NODE,
            predecessor=None if taken is None else taken.predecessor,
        )
        after = topic._replace(config_version=topic.config_version + 1)
        first = [] if taken is None else [taken.operation]
        operations = chain(first, topic_nodes.create_operations(topic))
        return await self._commit_in_chunks(after, operations)

    async def _delete(self, name: str) -> Topic:
        topic = self._existing(name)
        remembered = await predecessors.remember_operations(self._tree, topic)
        await topic_nodes.begin_deletion(self._tree, topic, remembered)
        self._view.publish(name, None)
        self._deletions += 1
        if not self._deletions % predecessors.CHECKED_AFTER:
            await predecessors.forget_surplus(self._tree)
        return topic

    async def _extend(
        self, name: str, count: int, explicit: ExplicitAssignment | None, validate_only: bool
    ) -> Topic:
        before = self._existing(name)
        brokers = await read_brokers(self._tree)
        after = extended(before, count, explicit, brokers, self._rng)
        if validate_only:
            return after
        operations = topic_nodes.extend_operations(before, after)
        return await self._commit_in_chunks(after, operations, topic_nodes.identity_checks(before))

    async def _commit_in_chunks(
        self, after: Topic, operations: Iterable[Operation], checks: Sequence[Check] = ()
    ) -> Topic:
        """The topic as it is then.

        The controller may have given the last partitions their first states in between.
        """
        try:
            await topic_nodes.commit_in_chunks(self._tree, operations, checks)
        except MultiFailedError:
            await self._refresh([after.name])
            found = self.topics.get(after.name)
            if found is None or found.topic_id != after.topic_id:
                raise
            if found.assignment != after.assignment:
                raise
            return found
        return self._publish(after)

    async def _configure(self, name: str, alter: Callable[[Config], Config]) -> Topic:
        before = self._existing(name)
        after = before._replace(config=dict(alter(before.config)))
        checks = topic_nodes.identity_checks(before)
        await commit(self._tree, [*checks, topic_nodes.config_operation(after)])
        return self._publish(after._replace(config_version=before.config_version + 1))

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


async def _trust() -> None:
    """Does nothing: while nothing else is known, the tree is the newest."""


def _is_gone(known: Topic | None, found: Topic | None) -> bool:
    """Whether a topic that was known seems to have been deleted."""
    return known is not None and (found is None or found.topic_id != known.topic_id)
