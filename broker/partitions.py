"""The partitions that this broker holds: opened, configured and given their roles as topics change.

Listens to the topic registry. A partition is held where the assignment names this broker; what the
disk holds beyond that is removed, and what it holds of a topic that was deleted and created again
under the same name (another topic id) is removed before the new one is opened.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from broker.config import Config
from broker.coordination.node_data import PartitionState
from broker.coordination.topic import Topic, TopicChanged, TopicCreated, TopicDeleted, TopicEvent
from broker.coordination.topic_registry import TopicRegistry
from broker.flusher import Flusher
from broker.membership import Membership
from broker.partition import Partition, ProduceRules
from broker.topic_config import TopicConfig, to_log_config
from protocol.errors import ErrorCode, KafkaError
from storage.file_system import StorageError
from storage.log_directory import LogDirectory

logger = logging.getLogger(__name__)


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
        on_failure: Callable[[StorageError], None],
    ) -> None:
        self.held: dict[tuple[str, int], Partition] = {}
        self._config = config
        self._logs = logs
        self._registry = registry
        self._flusher = flusher
        self._now_ms = now_ms
        self._on_failure = on_failure
        self._membership: Membership | None = None

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
        if partition is None:
            is_elsewhere = index in known.assignment
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if is_elsewhere
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if self._logs.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._logs.failure))
        return partition

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        return {key: partition.high_watermark for key, partition in self.held.items()}

    # --- topics come, change and go ---

    def take_up(self, membership: Membership) -> None:
        """Opens what the registry assigns to this broker, now and from now on.

        Raises `StorageError`.
        """
        self._membership = membership
        self._remove_strays()
        for topic in self._registry.topics.values():
            self._open_topic(topic)
        self._registry.listen(self._on_topic_event)

    def resume(self) -> None:
        """Takes up the roles that the registry now tells, after all partitions had resigned.

        Before `take_up` there is nothing to resume: a session may be lost during the start too.
        """
        if self._membership is None:
            return
        for topic in self._registry.topics.values():
            self._open_topic(topic)

    def resign(self) -> None:
        """Has no roles any more."""
        for partition in self.held.values():
            partition.resign()

    def _remove_strays(self) -> None:
        """Logs of topics that were deleted, and replicas that were moved, while this broker was away."""
        for name, index in list(self._logs.logs):
            topic = self._registry.topics.get(name)
            if topic is None or not self._is_assigned(topic, index):
                logger.warning("removing the log of %s-%d: it is no longer assigned", name, index)
                self._logs.delete(name, index)

    def _is_assigned(self, topic: Topic, index: int) -> bool:
        return self._config.broker_id in topic.assignment.get(index, ())

    def _on_topic_event(self, event: TopicEvent) -> None:
        try:
            match event:
                case TopicCreated(topic):
                    self._open_topic(topic)
                case TopicChanged(before, after):
                    self._open_topic(after)
                    if before.config != after.config:
                        self._reconfigure(after)
                case TopicDeleted(topic):
                    self._delete(topic.name, topic.assignment)
        except StorageError as error:
            self._on_failure(error)

    def _open_topic(self, topic: Topic) -> None:
        """Opens the partitions that are new, and brings roles up to date."""
        for index, replicas in topic.assignment.items():
            if not self._is_assigned(topic, index):
                self._delete(topic.name, [index])
                continue
            partition = self.held.get((topic.name, index))
            if partition is None:
                partition = self._open_partition(topic, index)
            state = topic.states.get(index)
            if state is not None:
                self._update(partition, state, replicas)

    def _update(
        self, partition: Partition, state: PartitionState, replicas: tuple[int, ...]
    ) -> None:
        before = partition.leader_id, partition.leader_epoch
        partition.update(state, replicas)
        if (partition.leader_id, partition.leader_epoch) != before:
            self._require_membership().role_changed(partition)

    def _reconfigure(self, topic: Topic) -> None:
        log_config = to_log_config(self._config, topic.config)
        rules = ProduceRules.of(TopicConfig.of(self._config, topic.config))
        for index in topic.assignment:
            partition = self.held.get((topic.name, index))
            if partition is not None:
                partition.rules = rules
                partition.log.reconfigure(log_config)

    def _open_partition(self, topic: Topic, index: int) -> Partition:
        log_config = to_log_config(self._config, topic.config)
        key = (topic.name, index)
        if self._logs.topic_ids.get(key, topic.topic_id) != topic.topic_id:
            logger.warning("removing the log of %s-%d: its topic was deleted", *key)
            self._logs.delete(*key)
        log = self._logs.logs.get(key)
        if log is None:
            log = self._logs.create(*key, topic.topic_id, log_config, now_ms=self._now_ms())
        else:
            log.reconfigure(log_config)
        partition = Partition(
            topic.name,
            index,
            topic.topic_id,
            log,
            config=self._config,
            rules=ProduceRules.of(TopicConfig.of(self._config, topic.config)),
            high_watermark=self._logs.high_watermarks.get(key, 0),
            membership=self._require_membership(),
            on_dirty=self._flusher.mark_dirty,
        )
        self.held[key] = partition
        return partition

    def _delete(self, topic: str, indexes: Iterable[int]) -> None:
        for index in indexes:
            partition = self.held.pop((topic, index), None)
            if partition is not None:
                partition.resign()
                self._require_membership().forget(partition)
                self._flusher.forget(partition)
                self._logs.delete(topic, index)

    def _require_membership(self) -> Membership:
        assert self._membership is not None, "no partition is opened before `take_up`"
        return self._membership
