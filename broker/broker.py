"""The broker: what the handlers of both ports share, and how it starts, fails and stops.

Start, in this order, so that a crash at any point leaves nothing half claimed:
1. take the data directory (lock) and open its logs, recovering what a crash left;
2. open the coordination tree, agree on the cluster id, load the topics;
3. register this broker, raise the leader epochs of what it leads, open the partitions;
4. claim a block of producer ids. From here on requests can be answered.
Stop is the reverse. `serve.py` drives both and owns the sockets.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.config import Address, Config, LogFlush
from broker.coordination.cluster_id import read_or_create_cluster_id
from broker.coordination.node_data import decode_uuid
from broker.coordination.node_tree import CoordinationError, SessionState
from broker.coordination.registration import BrokerInfo, Endpoint, register_broker
from broker.coordination.topic import (
    NewTopic,
    Topic,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicEvent,
)
from broker.coordination.topic_registry import TopicRegistry
from broker.decisions import Decisions
from broker.environment import Environment
from broker.flusher import Flusher
from broker.metrics import Metrics
from broker.partition import Partition, ProduceRules
from broker.producer_ids import ProducerIds
from broker.topic_config import TopicConfig, to_log_config
from protocol.errors import ErrorCode, KafkaError
from storage.file_system import StorageError
from storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from storage.log_config import LogConfig

logger = logging.getLogger(__name__)

_FLUSH_INTERVAL_S: Final = 5.0
_HOUSEKEEPING_INTERVAL_S: Final = 5.0

class Broker:
    """One broker, from `start` to `stop`. All of it runs on one event loop."""

    def __init__(self, config: Config, environment: Environment) -> None:
        self.config = config
        self.environment = environment
        self.metrics = Metrics()
        self.decisions = Decisions(self.metrics)
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.live_brokers: dict[int, BrokerInfo] = {}
        self.now_ms = environment.now_ms
        self.is_stopping = False
        """Whoever waits for data is answered with what there is."""
        self.session_lost = asyncio.Event()
        """Set when the cluster has given this broker up: it must end, and may start again."""
        self._tasks: list[asyncio.Task[None]] = []
        self._flusher = Flusher(
            interval_s=0 if config.log_flush is LogFlush.COMMIT else _FLUSH_INTERVAL_S,
            on_failure=self.fail_storage,
        )

    # --- start ---

    async def start(self, endpoints: Mapping[str, Address]) -> None:
        """Everything up to the first request; `endpoints`: listener name -> advertised address.

        Raises `StorageError`, `CoordinationError`.
        """
        config = self.config
        if config.zookeeper_hosts is not None:
            raise CoordinationError(f"{config.coordinator} cannot be used yet, only embedded")
        self.logs = LogDirectory.open(
            config.data_dir,
            broker_id=config.broker_id,
            fs=self.environment.file_system,
            now_ms=self.now_ms(),
            config_for=self._log_config,
        )
        self.tree = await self.environment.open_tree(config)
        self._forget_session = self.tree.on_session(self._on_session)
        self.cluster_id = await self._agree_on_cluster_id()
        self.registry = TopicRegistry(
            self.tree, rng=self.environment.rng, new_uuid=self.environment.new_uuid
        )
        await self.registry.load()
        info = self._broker_info(endpoints)
        await register_broker(self.tree, info)
        self.live_brokers = {config.broker_id: info}
        await self.registry.claim_leadership(config.broker_id)
        for topic in self.registry.topics.values():
            self._open_topic(topic)
        self.registry.listen(self._on_topic_event)
        self.producer_ids = ProducerIds(self.tree, config.broker_id, config.producer_id_block_size)
        await self.producer_ids.start()
        self._tasks = [
            asyncio.create_task(self._flusher.run()),
            asyncio.create_task(self._housekeeping()),
        ]

    async def _agree_on_cluster_id(self) -> str:
        """The tree's cluster id; the first broker of all brings that of its data directory."""
        own = self.logs.cluster_id
        cluster_id = await read_or_create_cluster_id(self.tree, lambda: decode_uuid(own))
        if cluster_id != own:
            raise CoordinationError(
                f"data_dir {self.config.data_dir} belongs to cluster {own}, "
                f"the coordinator to cluster {cluster_id}; give this broker an empty data_dir"
            )
        return cluster_id

    def _broker_info(self, endpoints: Mapping[str, Address]) -> BrokerInfo:
        return BrokerInfo(
            broker_id=self.config.broker_id,
            endpoints={
                name: Endpoint(host=address.host, port=address.port)
                for name, address in endpoints.items()
            },
            started_ms=self.now_ms(),
            rack=self.config.broker_rack,
        )

    def _log_config(self, topic: str) -> LogConfig:  # noqa: ARG002 - what LogDirectory asks
        """Logs are opened before the topics are known; `_open_topic` gives them their overrides."""
        return to_log_config(self.config, {})

    # --- topics and partitions ---

    def addresses(self, listener: str) -> dict[int, Address]:
        """Where clients of this listener reach each live broker; those without it are left out."""
        return {
            broker_id: Address(endpoint.host, endpoint.port)
            for broker_id, info in self.live_brokers.items()
            if (endpoint := info.endpoints.get(listener)) is not None
        }

    @property
    def controller_id(self) -> int:
        return self.config.broker_id

    def find_partition(self, topic: str | uuid.UUID, index: int) -> Partition:
        """The partition by topic name or id. Raises `KafkaError` 3, 100 or 56."""
        if isinstance(topic, str):
            name: str | None = topic
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            found = self.registry.topics_by_id.get(topic)
            name = None if found is None else found.name
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        partition = None if name is None else self.partitions.get((name, index))
        if partition is None:
            code = missing if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code)
        if self.logs.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.logs.failure))
        return partition

    async def auto_create_topic(self, name: str) -> None:
        """Creates a topic because a client asked for it; fine when somebody else was faster."""
        new = NewTopic(
            name=name,
            partitions=self.config.num_partitions,
            replication_factor=self.config.default_replication_factor,
        )
        try:
            await self.registry.create_topic(new)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        else:
            logger.info("created topic %s because a client asked for it", name)

    def _on_topic_event(self, event: TopicEvent) -> None:
        try:
            match event:
                case TopicCreated(topic):
                    self._open_topic(topic)
                case TopicChanged(_, after):
                    self._open_topic(after)
                case TopicDeleted(topic):
                    self._delete_topic(topic)
        except StorageError as error:
            self.fail_storage(error)

    def _open_topic(self, topic: Topic) -> None:
        """Opens the partitions that are new, and brings configuration and roles up to date."""
        topic_config = TopicConfig.of(self.config, topic.config)
        log_config = to_log_config(self.config, topic.config)
        rules = ProduceRules.of(topic_config)
        for index, replicas in topic.assignment.items():
            if self.config.broker_id not in replicas:
                continue
            partition = self.partitions.get((topic.name, index))
            if partition is None:
                partition = self._open_partition(topic, index, log_config, rules)
            else:
                partition.rules = rules
                partition.log.reconfigure(log_config)
            state = topic.states[index]
            if (
                state.leader == self.config.broker_id
                and state.leader_epoch > partition.leader_epoch
            ):
                partition.become_leader(state.leader_epoch, state.isr)

    def _open_partition(
        self, topic: Topic, index: int, log_config: LogConfig, rules: ProduceRules
    ) -> Partition:
        key = (topic.name, index)
        log = self.logs.logs.get(key)
        if log is None:
            log = self.logs.create(
                topic.name, index, topic.topic_id, log_config, now_ms=self.now_ms()
            )
        else:
            log.reconfigure(log_config)
        partition = Partition(
            topic.name,
            index,
            topic.topic_id,
            log,
            config=self.config,
            rules=rules,
            replicas=topic.assignment[index],
            on_dirty=self._flusher.mark_dirty,
        )
        self.partitions[key] = partition
        return partition

    def _delete_topic(self, topic: Topic) -> None:
        for index in topic.assignment:
            partition = self.partitions.pop((topic.name, index), None)
            if partition is not None:
                partition.resign()
                self._flusher.forget(partition)
                self.logs.delete(topic.name, index)

    # --- while it runs ---

    def fail_storage(self, error: StorageError) -> None:
        """The disk failed: nothing is acknowledged from now on until a restart."""
        if self.logs.failure is not None:
            return
        logger.critical("log directory %s is offline: %s", self.config.data_dir, error)
        self.logs.fail(error)
        for partition in self.partitions.values():
            partition.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    def _on_session(self, state: SessionState) -> None:
        """Without a session others may lead what this broker led: it acknowledges nothing more."""
        if state is not SessionState.LOST:
            return
        logger.critical("the session with the coordinator is lost; stopping")
        for partition in self.partitions.values():
            partition.resign()
        self.session_lost.set()

    async def _housekeeping(self) -> None:
        """Retention, expiry and checkpoints, every few seconds, a partition at a time."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_INTERVAL_S)
            try:
                await self._housekeep()
            except StorageError as error:
                self.fail_storage(error)
                return

    async def _housekeep(self) -> None:
        for partition in list(self.partitions.values()):
            partition.log.delete_old_segments(self.now_ms())
            # A slice at a time, with requests in between.
            while partition.log.expire_producers(self.now_ms()):  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        # In a thread, because produce requests must not wait for these syncs.
        await asyncio.to_thread(self.logs.start_checkpoint(self._high_watermarks()).run)

    def _high_watermarks(self) -> dict[tuple[str, int], int]:
        return {key: partition.high_watermark for key, partition in self.partitions.items()}

    # --- stop ---

    def begin_stop(self) -> None:
        """Lets no fetch wait any longer, so that the connections can be closed soon."""
        self.is_stopping = True
        for partition in self.partitions.values():
            partition.wake_fetches()

    async def stop(self) -> None:
        """Flushes, writes snapshots and the clean-shutdown marker, ends the session."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.producer_ids.close()
        if self.logs.failure is None:
            self.logs.close(self._high_watermarks())
        self._forget_session()
        await self.tree.close()
