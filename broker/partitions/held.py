"""The partitions that this broker holds: opened, configured and given their roles as topics change.

Listens to the topic registry. A partition is held where the assignment names this broker. When a topic is
deleted or a replica moved while the broker watches, its log is deleted. What the disk holds beyond that at
the start is set aside (`storage/strays.py`): the topic was deleted meanwhile, or something is damaged; the
broker cannot tell.

Roles change at once, in the step in which the registry tells of them. Directories are made and removed
beside the event loop, in the order of the events (`disk_queue.py`), a slice at a time; what a job
finds changed by the time it runs, it leaves to the job that the change has brought. A new topic
`is_coming` until all of its partitions here take records; until then clients are not told of it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from broker.cluster.membership import Membership
from broker.config.loading import Config
from broker.config.topic import TopicConfig, to_log_config
from broker.doubt import changes_state
from broker.metadata.node_data import PartitionState
from broker.metadata.topic import Topic, TopicChanged, TopicCreated, TopicDeleted, TopicEvent
from broker.metadata.topic_registry import TopicRegistry
from broker.partitions.disk_queue import DiskQueue, in_thread
from broker.partitions.flusher import Flusher
from broker.partitions.partition import Partition, ProduceRules
from protocol.errors import ErrorCode, KafkaError
from storage.file_system import OutOfDescriptorsError, StorageError
from storage.log import Log
from storage.log_config import LogConfig
from storage.log_directory import LogDirectory
from storage.pending_removal import PendingRemoval
from storage.properties_file import encode_uuid

logger = logging.getLogger(__name__)

MADE_AT_ONCE: Final = 20
"""Partitions whose directories are made in one go in a thread, and then taken in by the loop."""
GIVEN_UP_AT_ONCE: Final = 100
"""Partitions of a deleted topic whose waiting requests are answered in one step of the loop."""
_SWEEP_PAUSE_S: Final = 0.005
"""Between two slices of removed directories, so that the disk serves others too."""

Key = tuple[str, int]


@dataclass(slots=True)
class _Opening:
    """Partitions of one topic on their way."""

    is_new: bool
    """Whether the topic is."""
    done: asyncio.Future[None]
    """Of the last job."""
    indexes: set[int] = field(default_factory=set)
    jobs: int = 0


class Partitions:
    """All replicas of one broker, by topic and index."""

    def __init__(
        self,
        config: Config,
        logs: LogDirectory,
        registry: TopicRegistry,
        flusher: Flusher,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        on_failure: Callable[[StorageError], None],
    ) -> None:
        self.held: dict[Key, Partition] = {}
        self._config = config
        self._logs = logs
        self._registry = registry
        self._flusher = flusher
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._on_failure = on_failure
        self._membership: Membership | None = None
        self._has_missing = False
        """Whether a partition could not be opened for the lack of descriptors."""
        self._disk = DiskQueue("partitions on disk", self._on_disk_failure)
        self._sweeper = DiskQueue("removal of files", on_failure)
        self._opening: dict[uuid.UUID, _Opening] = {}
        self._removing: dict[uuid.UUID, asyncio.Future[None]] = {}

    # --- lookup ---

    def find(self, topic: str | uuid.UUID, index: int) -> Partition:
        """By topic name or id. Raises `KafkaError` 3, 100, 6 (another broker holds it) or 56."""
        if isinstance(topic, str):
            known = self._registry.topics.get(topic)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            known = self._registry.topics_by_id.get(topic)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        if known is None:
            raise KafkaError(missing)
        partition = self.held.get((known.name, index))
        if partition is None or partition.topic_id != known.topic_id:
            is_elsewhere = index in known.assignment
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if is_elsewhere
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if self._logs.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._logs.failure))
        return partition

    def high_watermarks(self) -> dict[Key, int]:
        return {key: partition.high_watermark for key, partition in self.held.items()}

    def is_coming(self, topic: Topic) -> bool:
        """Whether the topic is new, and not all of its partitions here take records yet."""
        opening = self._opening.get(topic.topic_id)
        return opening is not None and opening.is_new

    def opening(self, topic: Topic) -> Collection[int]:
        """The partitions of the topic that do not take records yet."""
        opening = self._opening.get(topic.topic_id)
        return () if opening is None else opening.indexes

    async def until_open(self, topic: Topic) -> None:
        """Returns when all partitions of the topic here take records, or are not wanted any more.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        while (opening := self._opening.get(topic.topic_id)) is not None:
            await asyncio.shield(opening.done)
        if self._logs.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._logs.failure))
        if self._has_missing and any(self._is_missing(topic, index) for index in topic.assignment):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"not all partitions of {topic.name} can be opened: too many files are open; they "
                f"will be opened as soon as there are descriptors",
            )

    def open_missing(self) -> None:
        """Opens the partitions for which there was no descriptor when they came."""
        if self._has_missing:
            self._has_missing = False
            for topic in self._registry.topics.values():
                self._apply(topic)

    def _on_disk_failure(self, error: StorageError) -> None:
        self._has_missing |= isinstance(error, OutOfDescriptorsError)
        self._on_failure(error)

    async def until_removed(self, topic: Topic) -> None:
        """Returns when the directories of a deleted topic have left their names."""
        while (removing := self._removing.get(topic.topic_id)) is not None:
            await asyncio.shield(removing)

    # --- topics come, change and go ---

    async def take_up(self, membership: Membership) -> None:
        """Opens what the registry assigns to this broker, now and from now on.

        Raises `StorageError`.
        """
        self._membership = membership
        self._registry.listen(self._on_topic_event)
        self.set_strays_aside()
        for name in list(self._registry.topics):
            topic = self._registry.topics.get(name)
            if topic is not None:
                self._apply(topic)
            await asyncio.sleep(0)
        await self._disk.idle()
        if self._logs.failure is not None:
            raise self._logs.failure

    def resume(self) -> None:
        """Takes up the roles that the registry now tells, after all partitions had resigned.

        Before `take_up` there is nothing to resume: a session may be lost during the start too.
        """
        if self._membership is None:
            return
        for topic in self._registry.topics.values():
            self._apply(topic)

    def resign(self) -> None:
        """Has no roles any more."""
        for partition in self.held.values():
            partition.resign()

    async def close(self) -> None:
        """Returns when no thread is at work in the data directory; what is left waits for the next start."""
        await self._disk.close()
        await self._sweeper.close()

    def set_strays_aside(self) -> None:
        """Sets aside the logs that do not belong here. Raises `StorageError`.

        Before this broker joins: a replica that lacks its log must not count as in sync.
        """
        reasons = {
            key: reason
            for key, topic_id in self._logs.topic_ids.items()
            if (reason := self._why_stray(*key, topic_id)) is not None
        }
        if any(self._lacks(*key) for key in reasons):
            self._logs.doubt_tail()
        self._logs.set_aside(reasons, now_ms=self._wall_ms())

    def _why_stray(self, name: str, index: int, topic_id: uuid.UUID) -> str | None:
        """Why the log found on disk is not one of this broker's; None: it is."""
        topic = self._registry.topics.get(name)
        if topic is None:
            return f"there is no topic {name} (it was deleted, or the coordinator lost it)"
        if topic.topic_id != topic_id:
            return (
                f"it belongs to a topic of id {encode_uuid(topic_id)}, but {name} has id "
                f"{encode_uuid(topic.topic_id)} (it was deleted and created again, or "
                f"partition.metadata is damaged)"
            )
        if not self._is_wanted((name, index), topic_id):
            return f"the replica is not assigned to broker {self._config.broker_id}"
        return None

    def _lacks(self, name: str, index: int) -> bool:
        """Whether this broker should have a log of the partition, and is about to begin anew."""
        topic = self._registry.topics.get(name)
        return topic is not None and self._config.broker_id in topic.assignment.get(index, ())

    def _is_wanted(self, key: Key, topic_id: uuid.UUID) -> bool:
        """Whether the registry assigns the partition of this very topic to this broker."""
        topic = self._registry.topics_by_id.get(topic_id)
        return topic is not None and self._config.broker_id in topic.assignment.get(key[1], ())

    @changes_state
    def _on_topic_event(self, event: TopicEvent) -> None:
        match event:
            case TopicCreated(topic):
                self._apply(topic, is_new=True)
            case TopicChanged(before, after):
                self._apply(after)
                if before.config != after.config:
                    self._reconfigure(after)
            case TopicDeleted(topic):
                self._removing[topic.topic_id] = self._remove(
                    topic.name, topic.topic_id, topic.assignment
                )

    def _apply(self, topic: Topic, *, is_new: bool = False) -> None:
        """Brings roles up to date, and has directories made and removed where that is needed."""
        opening = self.opening(topic)
        missing, unwanted, found = [], [], []
        for index, replicas in topic.assignment.items():
            is_here = self._is_here(topic, index)
            if self._config.broker_id not in replicas:
                if is_here or index in opening:
                    unwanted.append(index)
            elif is_here:
                self._update(self.held[topic.name, index], topic.states.get(index), replicas)
            elif self._logs.topic_ids.get((topic.name, index)) == topic.topic_id:
                found.append(index)
            elif index not in opening:
                missing.append(index)
        self._hold_all(topic, found)
        if unwanted:
            for index in unwanted:
                self._give_up(topic.name, index)
            self._remove(topic.name, topic.topic_id, unwanted)
        if missing:
            self._open(topic, missing, is_new=is_new)

    def _is_here(self, topic: Topic, index: int) -> bool:
        """Whether the partition is held; one of an earlier topic of the same name is on its way out."""
        partition = self.held.get((topic.name, index))
        return partition is not None and partition.topic_id == topic.topic_id

    def _is_missing(self, topic: Topic, index: int) -> bool:
        """Whether the partition belongs here and is not held."""
        is_wanted = self._is_wanted((topic.name, index), topic.topic_id)
        return is_wanted and not self._is_here(topic, index)

    def _update(
        self, partition: Partition, state: PartitionState | None, replicas: tuple[int, ...]
    ) -> None:
        if state is None:
            return
        before = partition.leader_id, partition.leader_epoch
        partition.update(state, replicas)
        if (partition.leader_id, partition.leader_epoch) != before:
            self._require_membership().role_changed(partition)

    def _rules_of(self, topic: Topic) -> tuple[ProduceRules, LogConfig]:
        rules = ProduceRules.of(TopicConfig.of(self._config, topic.config))
        return rules, to_log_config(self._config, topic.config)

    def _reconfigure(self, topic: Topic) -> None:
        rules, log_config = self._rules_of(topic)
        for index in topic.assignment:
            partition = self.held.get((topic.name, index))
            if partition is not None and partition.topic_id == topic.topic_id:
                partition.rules = rules
                partition.log.reconfigure(log_config)

    # --- opening ---

    def _open(self, topic: Topic, indexes: Sequence[int], *, is_new: bool) -> None:
        """Has the directories of partitions made, after those of an earlier topic have gone."""
        earlier: dict[uuid.UUID, list[int]] = {}
        for index in indexes:
            topic_id = self._logs.topic_ids.get((topic.name, index))
            if topic_id is not None:
                earlier.setdefault(topic_id, []).append(index)
        for topic_id, ones in earlier.items():
            if topic_id not in self._removing:
                self._remove(topic.name, topic_id, ones)
        done = self._disk.submit(partial(self._make_all, topic.topic_id, indexes))
        opening = self._opening.setdefault(topic.topic_id, _Opening(is_new, done))
        opening.done = done
        opening.indexes.update(indexes)
        opening.jobs += 1

    async def _make_all(self, topic_id: uuid.UUID, indexes: Sequence[int]) -> None:
        opening = self._opening[topic_id]
        try:
            for some in _slices(indexes, MADE_AT_ONCE):
                if self._logs.failure is not None or self._disk.is_closing:
                    return
                await self._make_some(topic_id, some)
                opening.indexes.difference_update(some)
        finally:
            opening.indexes.difference_update(indexes)
            opening.jobs -= 1
            if not opening.jobs:
                del self._opening[topic_id]

    async def _make_some(self, topic_id: uuid.UUID, indexes: Sequence[int]) -> None:
        topic = self._registry.topics_by_id.get(topic_id)
        if topic is None:
            return
        wanted = [
            index
            for index in indexes
            if self._is_wanted((topic.name, index), topic_id)
            and (topic.name, index) not in self._logs.logs
        ]
        _, log_config = self._rules_of(topic)
        made = await in_thread(partial(self._make, topic, wanted, log_config))
        for index, log in made:
            self._logs.add(topic.name, index, topic_id, log)
        now = self._registry.topics_by_id.get(topic_id)
        if now is None:
            return  # a removal is behind this job
        still_wanted = [index for index, _ in made if self._is_wanted((now.name, index), topic_id)]
        self._hold_all(now, still_wanted)

    def _make(
        self, topic: Topic, indexes: Iterable[int], log_config: LogConfig
    ) -> list[tuple[int, Log]]:
        """In a thread; touches nothing but the disk."""
        made: list[tuple[int, Log]] = []
        try:
            for index in indexes:
                log = self._logs.make(
                    topic.name, index, topic.topic_id, log_config, now_ms=self._now_ms()
                )
                made.append((index, log))
        except StorageError:
            for _, log in made:
                log.abandon()
            raise
        return made

    def _hold_all(self, topic: Topic, indexes: Sequence[int]) -> None:
        if indexes:
            rules = self._rules_of(topic)
            for index in indexes:
                self._hold(topic, index, rules)

    def _hold(self, topic: Topic, index: int, rules: tuple[ProduceRules, LogConfig]) -> None:
        """From now on the partition is there for requests, in the role that its state gives it."""
        key = topic.name, index
        produce_rules, log_config = rules
        log = self._logs.logs[key]
        if log.config != log_config:
            log.reconfigure(log_config)
        partition = Partition(
            topic.name,
            index,
            topic.topic_id,
            log,
            config=self._config,
            rules=produce_rules,
            high_watermark=self._logs.high_watermarks.get(key, 0),
            membership=self._require_membership(),
            on_dirty=self._flusher.mark_dirty,
        )
        self.held[key] = partition
        self._update(partition, topic.states.get(index), topic.assignment[index])

    # --- removal ---

    def _remove(
        self, name: str, topic_id: uuid.UUID, indexes: Iterable[int]
    ) -> asyncio.Future[None]:
        """Has partitions removed, unless they are wanted again by then."""
        return self._disk.submit(partial(self._remove_all, name, topic_id, list(indexes)))

    async def _remove_all(self, name: str, topic_id: uuid.UUID, indexes: list[int]) -> None:
        try:
            for some in _slices(indexes, GIVEN_UP_AT_ONCE):
                for key in ((name, index) for index in some):
                    partition = self.held.get(key)
                    is_it = partition is not None and partition.topic_id == topic_id
                    if is_it and not self._is_wanted(key, topic_id):
                        self._give_up(*key)
                await asyncio.sleep(0)
            keys = [
                key
                for key in ((name, index) for index in indexes)
                if self._logs.topic_ids.get(key) == topic_id and not self._is_wanted(key, topic_id)
            ]
            if keys and self._logs.failure is None:
                pending = self._logs.forget(keys)
                try:
                    await in_thread(pending.run)
                except OutOfDescriptorsError as error:
                    # Not even a spare one: a topic of the same name must not find these directories.
                    raise StorageError(error.path, "partitions are removed by half") from error
                logger.info("removed %d partitions of topic %s from the disk", len(keys), name)
                self._sweeper.submit(partial(self._sweep, pending))
        finally:
            self._removing.pop(topic_id, None)

    def _give_up(self, name: str, index: int) -> None:
        partition = self.held.pop((name, index), None)
        if partition is not None:
            partition.resign()
            self._require_membership().forget(partition)
            self._flusher.forget(partition)

    async def _sweep(self, pending: PendingRemoval) -> None:
        """Removes the files; what is left when the broker stops, the next start removes."""
        while not self._sweeper.is_closing and self._logs.failure is None:
            if not await in_thread(pending.remove_some):
                return
            await asyncio.sleep(_SWEEP_PAUSE_S)

    def _require_membership(self) -> Membership:
        assert self._membership is not None, "no partition is opened before `take_up`"
        return self._membership


def _slices(indexes: Iterable[int], size: int) -> Iterator[list[int]]:
    iterator = iter(indexes)
    while some := list(islice(iterator, size)):
        yield some
