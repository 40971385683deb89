"""The partitions that this broker holds: opened, configured and given their roles as topics change.

Listens to the topic registry. A partition is held if the assignment names this broker. When a topic is
deleted or a replica moved while the broker runs, its log is removed (`removal.py`); logs that do not
belong here at the start are set aside (`stray_logs.py`).

Roles change at once, in the step in which the registry announces them, unless the log is being changed
(`log_changes.py`). Directories are made and removed
off the event loop, in the order of the events (`opening.py`, `removal.py`); a job leaves whatever changed
before it ran to the job that the change has queued.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from echoless.broker.config.dynamic import OF_LOGS
from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from echoless.broker.config.loading import Config
from echoless.broker.config.topic import topic_in_force
from echoless.broker.doubt import changes_state
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metadata.topic import (
    Topic,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicEvent,
)
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.partitions.assignment import BrokerAssignment, Key
from echoless.broker.partitions.disk_queue import DiskQueue
from echoless.broker.partitions.fencing import Fencing
from echoless.broker.partitions.flusher import Flusher
from echoless.broker.partitions.log_changes import LogChanges
from echoless.broker.partitions.log_configs import log_configs
from echoless.broker.partitions.opening import PartitionOpener
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.broker.partitions.removal import Removal
from echoless.broker.partitions.roles import RoleListener
from echoless.broker.partitions.slices import slices
from echoless.broker.partitions.stray_logs import finish_deletions, set_strays_aside
from echoless.broker.partitions.unserved_topics import UnservedTopics
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.storage.disk_work import RunAll, one_by_one
from echoless.storage.file_system import OutOfDescriptorsError, StorageError
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory

_CONFIGURED_AT_ONCE: Final = 100
"""Partitions that get new settings of the broker in one turn of the event loop: a millisecond."""


class PartitionRegistry:
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
        run_all: RunAll = one_by_one,
    ) -> None:
        self.held: dict[Key, Partition] = {}
        self.unserved = UnservedTopics()
        """The topics with a replica here that this broker may not lead."""
        self._config = config
        self._logs = logs
        self._registry = registry
        self._flusher = flusher
        self._wall_ms = wall_ms
        self._on_failure = on_failure
        self._fencing: Fencing[Partition] | None = None
        self._role_listeners: list[RoleListener] = []
        self._settings_listeners: list[Callable[[Collection[Key]], None]] = []
        self._has_missing = False
        """Whether a partition could not be opened for lack of file descriptors."""
        self._assigned = BrokerAssignment(registry, config.broker_id)
        self._disk = DiskQueue("partitions on disk", self._on_disk_failure)
        self.log_changes = LogChanges(run_all=run_all, update=self._update, on_failure=on_failure)
        self._removal = Removal(
            logs,
            self._assigned,
            self._disk,
            files_after_s=config.log_segment_delete_delay_ms / 1000,
            retire=self._retire,
            on_failure=on_failure,
        )
        self._opening = PartitionOpener(
            logs,
            registry,
            self._assigned,
            self._disk,
            log_configs=lambda topic: log_configs(config, topic),
            now_ms=now_ms,
            hold=self._hold_all,
        )

    @property
    def failure(self) -> StorageError | None:
        """The error that took the log directory offline."""
        return self._logs.failure

    # --- lookup ---

    def find(self, topic: str | uuid.UUID, index: int) -> Partition:
        """Returns a partition by topic name or id.

        Raises `KafkaError` 3, 100, 6 (another broker holds it) or 56.
        """
        if isinstance(topic, str):
            known = self._registry.topics.get(topic)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            known = self._registry.topics_by_id.get(topic)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        if known is None:
            raise KafkaError(missing)
        partition = self.held.get((known.name, index))
        if partition is None or (
            partition.topic_id is not known.topic_id  # usually it is, and comparing is slow
            and partition.topic_id != known.topic_id
        ):
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
        return self._opening.is_new(topic)

    def opening(self, topic: Topic) -> Collection[int]:
        """The partitions of the topic that do not take records yet."""
        return self._opening.indexes(topic)

    async def until_open(self, topic: Topic) -> None:
        """Returns when all partitions of the topic here take records, or are not wanted any more.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        await self._opening.until_done(topic)
        if self._logs.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._logs.failure))
        if self._has_missing and any(self._is_missing(topic, index) for index in topic.assignment):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"not all partitions of {topic.name} can be opened: too many files are open; they "
                f"will be opened as soon as there are descriptors",
            )

    async def until_removed(self, topic: Topic) -> None:
        """Returns when the directories of a deleted topic have left their names."""
        await self._removal.until_removed(topic)

    async def until_free(self, name: str) -> None:
        """Returns when no deleted topic of this name has directories under it."""
        await self._removal.until_free(name)

    # --- start, session and stop ---

    def set_strays_aside(self) -> None:
        """Sets aside the logs that do not belong here. Raises `StorageError`.

        Logs of topics that were certainly deleted are removed.
        """
        deleted = finish_deletions(self._logs, self._registry)
        if deleted is not None:
            self._removal.sweep(deleted)
        set_strays_aside(self._logs, self._registry, self._config.broker_id, self._wall_ms())

    def listen(self, listener: RoleListener) -> None:
        """Notifies the listener of every later change of a role."""
        self._role_listeners.append(listener)

    def listen_to_settings(self, listener: Callable[[Collection[Key]], None]) -> None:
        """Calls `listener` with the partitions whose topics have new settings."""
        self._settings_listeners.append(listener)

    async def take_up(self, fencing: Fencing[Partition]) -> None:
        """Opens what the registry assigns to this broker, now and from now on.

        Raises `StorageError`.
        """
        self._fencing = fencing
        self._registry.listen(self._on_topic_event)
        self.set_strays_aside()
        self._removal.sweep(self._logs.leftovers())
        for name in list(self._registry.topics):
            topic = self._registry.topics.get(name)
            if topic is not None:
                self._apply(topic, topic.assignment)
            await asyncio.sleep(0)
        await self._disk.idle()
        if self._logs.failure is not None:
            raise self._logs.failure

    def resume(self) -> None:
        """Assumes the roles that the registry names, after all partitions had resigned.

        Does nothing before `take_up`: a session may be lost during the start too.
        """
        if self._fencing is None:
            return
        for topic in self._registry.topics.values():
            self._apply(topic, topic.assignment)

    def resign(self) -> None:
        """Gives up the roles of all partitions."""
        for partition in self.held.values():
            self._resign(partition)

    def open_missing(self) -> None:
        """Opens the partitions for which there was no descriptor when they were assigned."""
        if self._has_missing:
            self._has_missing = False
            for topic in self._registry.topics.values():
                self._apply(topic, topic.assignment)

    def _on_disk_failure(self, error: StorageError) -> None:
        self._has_missing |= isinstance(error, OutOfDescriptorsError)
        self._on_failure(error)

    async def close(self) -> None:
        """Returns when no thread works in the data directory; what is left waits for the next start."""
        await self.log_changes.close()
        await self._disk.close()
        await self._removal.close()

    # --- settings, and topics that are created, changed and deleted ---

    async def settings_changed(self, names: frozenset[str]) -> None:
        """Applies new settings of this broker to partitions and logs that it holds, some of a topic at a time."""
        if names.isdisjoint(OF_LOGS):
            return
        for name, topic in list(self._registry.topics.items()):
            for some in slices(topic.assignment, _CONFIGURED_AT_ONCE):
                now = self._registry.topics.get(name)  # its own settings may have changed meanwhile
                if now is not None:
                    self._reconfigure(now, some)
                await asyncio.sleep(0)

    @changes_state
    def _on_topic_event(self, event: TopicEvent) -> None:
        match event:
            case TopicCreated(topic):
                self._apply(topic, topic.assignment, is_new=True)
            case TopicChanged(before, after):
                self._apply(after, event.partitions())
                if before.config != after.config:
                    if not any(self._is_here(after, index) for index in after.assignment):
                        self.unserved.note(after.name, None)
                    self._reconfigure(after, after.assignment)
            case TopicDeleted(topic):
                self.unserved.note(topic.name, None)
                self._removal.remove_topic(topic)

    def _apply(self, topic: Topic, indexes: Iterable[int], *, is_new: bool = False) -> None:
        """Brings the roles of some partitions up to date, and has directories made and removed."""
        opening = self.opening(topic)
        missing, unwanted, found = [], [], []
        for index in indexes:
            replicas = topic.assignment[index]
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
                self._retire((topic.name, index), topic.topic_id)
            self._removal.remove(topic.name, topic.topic_id, unwanted)
        if missing:
            self._remove_earlier(topic.name, missing)
            self._opening.open(topic, missing, is_new=is_new)

    def _remove_earlier(self, name: str, indexes: Sequence[int]) -> None:
        """Has the directories of an earlier topic of the same name removed."""
        earlier: dict[uuid.UUID, list[int]] = {}
        for index in indexes:
            topic_id = self._logs.topic_ids.get((name, index))
            if topic_id is not None:
                earlier.setdefault(topic_id, []).append(index)
        for topic_id, ones in earlier.items():
            if not self._removal.is_removing(topic_id):
                self._removal.remove(name, topic_id, ones)

    def _is_here(self, topic: Topic, index: int) -> bool:
        """Whether the partition is held; a partition of an earlier topic of the same name is not it."""
        partition = self.held.get((topic.name, index))
        return partition is not None and partition.topic_id == topic.topic_id

    def _is_missing(self, topic: Topic, index: int) -> bool:
        """Whether the partition belongs here and is not held."""
        is_assigned = self._assigned.includes((topic.name, index), topic.topic_id)
        return is_assigned and not self._is_here(topic, index)

    # --- roles and configuration ---

    def _update(
        self, partition: Partition, state: LeaderAndIsr | None, replicas: tuple[int, ...]
    ) -> None:
        if state is None or self.log_changes.defers(partition, state, replicas):
            return
        before = partition.leader_id, partition.leader_epoch
        partition.update(state, replicas)
        if (partition.leader_id, partition.leader_epoch) != before:
            self._announce_role(partition)

    def _resign(self, partition: Partition) -> None:
        self.log_changes.resigned(partition)
        partition.resign()
        self._announce_role(partition)

    def _announce_role(self, partition: Partition) -> None:
        for listener in self._role_listeners:
            if partition.is_leader:
                listener.led(partition, partition.leader_epoch)
            else:
                listener.lost(partition)

    def _rules_of(self, topic: Topic) -> tuple[ProduceRules, Callable[[int], LogConfig]]:
        known = topic_in_force(self._config, topic.name, topic.config)
        self.unserved.note(topic.name, known.unreadable)
        rules = ProduceRules.of(
            known.config,
            is_internal=topic.name in INTERNAL_TOPICS,
            unserved=known.unreadable,
        )
        return rules, log_configs(self._config, topic)

    @changes_state
    def _reconfigure(self, topic: Topic, indexes: Iterable[int]) -> None:
        """Applies the settings of a topic to those of these partitions that are held."""
        held = [index for index in indexes if self._is_here(topic, index)]
        if not held:
            return
        rules, config_of = self._rules_of(topic)
        for index in held:
            partition = self.held[topic.name, index]
            had_served = partition.rules.unserved is None
            partition.apply_rules(rules)
            partition.log.reconfigure(config_of(index))
            if had_served != (rules.unserved is None):
                self._resign(partition)
                self._update(partition, topic.states.get(index), topic.assignment[index])
        for listener in self._settings_listeners:
            listener([(topic.name, index) for index in held])

    def _hold_all(self, topic: Topic, indexes: Sequence[int]) -> None:
        if indexes:
            rules, config_of = self._rules_of(topic)
            for index in indexes:
                self._hold(topic, index, rules, config_of(index))

    def _hold(self, topic: Topic, index: int, rules: ProduceRules, log_config: LogConfig) -> None:
        """Makes the partition available to requests, in the role that its state gives it."""
        key = topic.name, index
        log = self._logs.logs[key]
        if log.config != log_config:
            log.reconfigure(log_config)
        partition = Partition(
            topic.name,
            index,
            topic.topic_id,
            log,
            config=self._config,
            rules=rules,
            high_watermark=self._logs.high_watermarks.get(key, 0),
            fencing=self._require_fencing(),
            on_dirty=self._flusher.mark_dirty,
        )
        self.held[key] = partition
        log.note_change()
        self.log_changes.held(partition)
        self._update(partition, topic.states.get(index), topic.assignment[index])

    def _retire(self, key: Key, topic_id: uuid.UUID) -> None:
        """Stops holding the partition, if it is the one of this very topic."""
        partition = self.held.get(key)
        if partition is not None and partition.topic_id == topic_id:
            del self.held[key]
            self.log_changes.given_up(partition)
            self._resign(partition)
            self._flusher.forget(partition)

    def _require_fencing(self) -> Fencing[Partition]:
        assert self._fencing is not None, "no partition is opened before `take_up`"
        return self._fencing
