"""The broker: what the handlers of both ports share, and how it starts, fails and stops.

Start, in this order, so that a crash at any point leaves nothing half claimed:
1. take the data directory (lock);
2. open the coordination tree, agree on the cluster id, load the topics;
3. open the logs, each with its topic's configuration, recovering what a crash left;
4. join the cluster (`membership.py`), open the partitions and take up their roles;
5. claim a block of producer ids. From here on requests can be answered.
In a cluster step 2 comes first: a new data directory takes the cluster's id.
Stop is the reverse. `serve.py` drives both and owns the sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.clock import Clock
from broker.cluster.membership import Membership
from broker.cluster.metadata_rows import MetadataRows
from broker.cluster.stand_alone import StandAlone
from broker.config.loading import Address, Config, LogFlush
from broker.config.topic import to_log_config
from broker.decisions.decisions import Decisions
from broker.descriptors import descriptor_shares
from broker.environment import Environment
from broker.essential_task import essential_task
from broker.faults.faults import Faults
from broker.limited_log import LimitedLog
from broker.metadata.cluster_id import read_or_create_cluster_id
from broker.metadata.node_data import decode_uuid
from broker.metadata.old_copy import check_epochs_within
from broker.metadata.producer_ids import ProducerIds
from broker.metadata.registration import BrokerInfo, Endpoint
from broker.metadata.topic import NewTopic, Topic
from broker.metadata.topic_registry import TopicRegistry
from broker.metrics import Metrics
from broker.network.memory_budget import MemoryBudget
from broker.network.unsent_answers import UNSENT_BYTES_MAX, UnsentAnswers
from broker.partitions.disk_queue import in_thread
from broker.partitions.flusher import Flusher
from broker.partitions.held import Partitions
from broker.partitions.partition import Partition
from broker.partitions.retention import remove_old_segments
from broker.partitions.scrubber import Scrubber
from broker.partitions.topic_deletion import TopicDeletion
from broker.records.record_thread import RecordThread
from broker.tree.node_tree import CoordinationError
from protocol.errors import ErrorCode, KafkaError
from storage.file_system import OutOfDescriptorsError, StorageError
from storage.log_directory import LogDirectory
from storage.meta_properties import has_partitions, read_cluster_id

if TYPE_CHECKING:
    from broker.tree.node_tree import NodeTree
    from storage.log_config import LogConfig

logger = logging.getLogger(__name__)
limited: Final = LimitedLog(logger)

_FLUSH_INTERVAL_S: Final = 5.0
_HOUSEKEEPING_INTERVAL_S: Final = 5.0
_CLOCK_SAVED_EVERY_MS: Final = 60_000


class Broker:
    """One broker, from `start` to `stop`. All of it runs on one event loop."""

    logs: LogDirectory
    registry: TopicRegistry
    membership: Membership
    clock: Clock
    producer_ids: ProducerIds
    tree: NodeTree

    def __init__(self, config: Config, environment: Environment) -> None:
        self.config = config
        self.faults = Faults(self, environment)
        self.environment = self.faults.environment
        self.metrics = Metrics()
        self.request_memory = MemoryBudget(config.request_size_max)
        self.unsent_answers = UnsentAnswers(UNSENT_BYTES_MAX)
        self.decisions = Decisions(self.metrics)
        self.metadata_rows = MetadataRows(self)
        self.partitions: dict[tuple[str, int], Partition] = {}
        """The replicas on this broker, by topic and index."""
        self.now_ms = environment.now_ms
        self.record_thread = RecordThread()
        self.is_stopping = False
        """Whoever waits for data is answered with what there is."""
        self.session_lost = asyncio.Event()
        """Set when the cluster has given this broker up: it must end, and may start again."""
        self.starting: str | None = "reading the data directory"
        """How far the start is; None once requests are answered."""
        self._is_new_directory = False
        self._clock_saved_ms = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._flusher = Flusher(
            interval_s=0 if config.log_flush is LogFlush.COMMIT else _FLUSH_INTERVAL_S,
            on_failure=self.fail_storage,
            run_all=self.environment.run_all,
        )

    # --- start ---

    async def start(self, endpoints: Mapping[str, Address]) -> None:
        """Everything up to the first request; `endpoints`: listener name -> advertised address.

        Raises `StorageError`, `CoordinationError`.
        """
        if self.config.zookeeper_hosts is None:
            self._claim_directory(None)
            self.tree = await self.environment.open_tree(self.config)
            await self._agree_on_cluster_id(self.logs.cluster_id)
        else:
            self.tree = await self.environment.open_tree(self.config)
            own = read_cluster_id(self.environment.file_system, self.config.data_dir)
            self._is_new_directory = own is None
            await self._agree_on_cluster_id(own)
            self._claim_directory(self.cluster_id)
        self.registry = TopicRegistry(
            self.tree, rng=self.environment.rng, new_uuid=self.environment.new_uuid
        )
        await self.registry.load()
        self.clock = Clock(self.now_ms, self.environment.monotonic_ms, self.logs.last_clock())
        await self._open_logs()
        self.metrics.recovered(log.recovery for log in self.logs.logs.values())
        await self._refuse_an_old_coordinator()
        self._partitions = Partitions(
            self.config,
            self.logs,
            self.registry,
            self._flusher,
            now_ms=self.clock.steady_ms,
            wall_ms=self.now_ms,
            on_failure=self.fail_storage,
        )
        self._topic_deletion = TopicDeletion(self.registry, self._partitions)
        self._partitions.set_strays_aside()
        self.partitions = self._partitions.held
        self.membership = self._choose_membership()
        await self.membership.join(self._broker_info(endpoints))
        if self.config.zookeeper_hosts is not None:
            self.logs.vouch_for_tail()  # no state counts any more on what a power failure took
        await self._partitions.take_up(self.membership)
        await self.producer_ids.start()
        self._tasks = [
            essential_task(self._flusher.run(), "flusher"),
            essential_task(self._housekeeping(), "housekeeping"),
        ]
        if self.config.log_scrub_bytes_per_second:
            self._tasks.append(essential_task(self._scrubber().run(), "scrubber"))
        self.starting = None

    async def _open_logs(self) -> None:
        """A log at a time: whoever asks on the admin port meanwhile is told how far it is."""
        opening = self.logs.opening(
            self.clock.steady_ms(),
            self._log_config,
            is_committed=self.config.log_flush is LogFlush.COMMIT,
        )
        with contextlib.closing(opening):
            for opened, count in opening:
                self.starting = f"{opened} of {count} logs are open"
                await asyncio.sleep(0)
        self.starting = "joining"

    def _claim_directory(self, cluster_id: str | None) -> None:
        self.logs = LogDirectory.claim(
            self.config.data_dir,
            broker_id=self.config.broker_id,
            fs=self.environment.file_system,
            cluster_id=cluster_id,
        )

    def _scrubber(self) -> Scrubber:
        return Scrubber(
            self.environment.file_system,
            self.logs.logs,
            self.logs.damaged,
            self.metrics,
            bytes_per_s=self.config.log_scrub_bytes_per_second,
            monotonic_s=asyncio.get_running_loop().time,
        )

    async def _refuse_an_old_coordinator(self) -> None:
        """Before anything is written to the tree, or removed because that does not know it."""
        self.producer_ids = ProducerIds(
            self.tree,
            self.config.broker_id,
            self.config.producer_id_block_size,
            last_claimed_id=self.logs.last_claimed_id(),
            remember=self._remember_claimed_id,
        )
        await self.producer_ids.check()
        await check_epochs_within(self.registry, self.logs)

    async def _remember_claimed_id(self, last_id: int) -> None:
        try:
            await in_thread(partial(self.logs.save_claimed_id, last_id))
        except StorageError as error:
            self.fail_storage(error)
            raise CoordinationError(f"cannot note claimed producer ids: {error}") from error

    async def _agree_on_cluster_id(self, own: str | None) -> None:
        """The tree's cluster id; the first broker of all makes it, or brings that of its directory.

        A tree that has none knows no topics either: every partition would be removed as a stray.
        """

        def of_directory() -> uuid.UUID:
            if own is None:
                return self.environment.new_uuid()
            if has_partitions(self.environment.file_system, self.config.data_dir):
                raise CoordinationError(
                    f"data_dir {self.config.data_dir} holds partitions of cluster {own}, but the "
                    f"coordinator knows no cluster: correct its address, or bring its data back; "
                    f"or give this broker an empty data_dir"
                )
            return decode_uuid(own)

        cluster_id = await read_or_create_cluster_id(self.tree, of_directory)
        if own is not None and cluster_id != own:
            raise CoordinationError(
                f"data_dir {self.config.data_dir} belongs to cluster {own}, "
                f"the coordinator to cluster {cluster_id}; give this broker an empty data_dir"
            )
        self.cluster_id = cluster_id

    def _choose_membership(self) -> Membership:
        if self.config.zookeeper_hosts is None:
            alone = StandAlone(self.tree, self.registry, self.config.broker_id)
            alone.on_session_lost(self._on_session_lost)
            return alone
        from broker.cluster.joining import Joining
        from broker.cluster.member import Callbacks, ClusterMember

        return ClusterMember(
            self.config,
            self.environment,
            self.tree,
            self.registry,
            self._partitions,
            joining=Joining(
                self.config,
                self.tree,
                self.registry,
                self.logs,
                tail_is_safe=self.logs.tail_is_safe or self.config.log_flush is LogFlush.COMMIT,
                is_new_directory=self._is_new_directory,
            ),
            metrics=self.metrics,
            steady_ms=self.clock.steady_ms,
            callbacks=Callbacks(
                storage_failed=self.fail_storage, cannot_rejoin=self.session_lost.set
            ),
        )

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

    def _log_config(self, topic: str) -> LogConfig:
        """What a log of the topic is opened with; without overrides if the topic is gone."""
        known = self.registry.topics.get(topic)
        return to_log_config(self.config, {} if known is None else known.config)

    # --- what handlers ask ---

    @property
    def live_brokers(self) -> Mapping[int, BrokerInfo]:
        return self.membership.brokers

    def addresses(self, listener: str) -> dict[int, Address]:
        """Where clients of this listener reach each broker; those without it are left out."""
        return {
            broker_id: Address(endpoint.host, endpoint.port)
            for broker_id, info in self.membership.brokers_for_clients.items()
            if (endpoint := info.endpoints.get(listener)) is not None
        }

    @property
    def controller_id(self) -> int:
        return self.membership.controller_id

    def find_partition(self, topic: str | uuid.UUID, index: int) -> Partition:
        """The partition by topic name or id. Raises `KafkaError` 3, 100, 6 or 56."""
        return self._partitions.find(topic, index)

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Creates a topic; it is there for the clients of all brokers when this returns.

        Raises `KafkaError` as `TopicRegistry.create_topic` does.
        """
        wanted = len(new.assignment or ()) or new.partitions
        lack = self._lack_of_room(wanted, new.replication_factor)
        if lack is not None:
            await self.registry.create_topic(new, validate_only=True)  # other reasons come first
            raise lack
        try:
            if not validate_only:
                await self._partitions.until_free(new.name)
            topic = await self.registry.create_topic(new, validate_only=validate_only)
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and new.name in self.registry.topics:
                await self._partitions.until_open(self.registry.topics[new.name])
            raise
        if not validate_only:
            await self._partitions.until_open(topic)
            await self.membership.topic_created(topic)
        return topic

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignment: Mapping[int, tuple[int, ...]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Extends a topic; the new partitions take records when this returns.

        Raises `KafkaError` as `TopicRegistry.create_partitions` does.
        """
        known = self.registry.topics.get(name)
        if known is not None:
            added = max(count - known.partition_count, 0)
            lack = self._lack_of_room(added, known.replication_factor)
            if lack is not None:
                await self.registry.create_partitions(name, count, assignment, validate_only=True)
                raise lack
        topic = await self.registry.create_partitions(
            name, count, assignment, validate_only=validate_only
        )
        if not validate_only:
            await self._partitions.until_open(topic)

    async def delete_topic(self, name: str) -> Topic:
        """Deletes a topic (`partitions/topic_deletion.py`).

        Raises `KafkaError` as `TopicRegistry.delete_topic` does.
        """
        return await self._topic_deletion.delete(name)

    def is_coming(self, topic: Topic) -> bool:
        """Whether the topic is new, and clients are not to be told of it yet."""
        return self._partitions.is_coming(topic)

    def opening(self, topic: Topic) -> Collection[int]:
        """The partitions of the topic that do not take records here yet."""
        return self._partitions.opening(topic)

    async def until_open(self, topic: Topic) -> None:
        """Returns when this broker's partitions of the topic take records. Raises `KafkaError` 56."""
        await self._partitions.until_open(topic)

    def _lack_of_room(self, partitions: int, replication_factor: int) -> KafkaError | None:
        """Why this broker's share of new partitions could not be opened, if that is so."""
        brokers = max(len(self.membership.brokers), 1)
        share = math.ceil(partitions * min(max(replication_factor, 1), brokers) / brokers)
        if self.environment.file_system.can_open(share):
            return None
        return KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} more partitions need more open files than broker "
            f"{self.config.broker_id} may have (at most {descriptor_shares().limit} descriptors, "
            f"connections included): raise its limit (ulimit -n), or delete topics",
        )

    async def auto_create_topic(self, name: str) -> None:
        """Creates a topic because a client asked for it; fine when somebody else was faster."""
        new = NewTopic(
            name=name,
            partitions=self.config.num_partitions,
            replication_factor=self.config.default_replication_factor,
        )
        try:
            await self.create_topic(new)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        else:
            logger.info("created topic %s because a client asked for it", name)

    # --- while it runs ---

    def fail_storage(self, error: StorageError) -> None:
        """The disk failed: nothing is acknowledged from now on until a restart."""
        if self.logs.failure is not None:
            return
        if isinstance(error, OutOfDescriptorsError):
            self._warn_of_descriptors(error)
            return
        logger.critical("log directory %s is offline: %s", self.config.data_dir, error)
        self.logs.fail(error)
        for partition in self.partitions.values():
            partition.waiters.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        self.membership.storage_failed()

    def _warn_of_descriptors(self, error: OutOfDescriptorsError) -> None:
        """Nothing is in doubt: what was refused may be tried again, and will succeed in time."""
        self.metrics.descriptors_lacked_total += 1
        message = "no file descriptor is left, what needs one is refused: %s"
        limited.log(logging.ERROR, "", message, error)

    def _on_session_lost(self) -> None:
        """A broker that stands alone ends with its session."""
        logger.critical("the session with the coordinator is lost; stopping")
        self._partitions.resign()
        self.session_lost.set()

    async def _housekeeping(self) -> None:
        """Retention, expiry and checkpoints, every few seconds, a partition at a time."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_INTERVAL_S)
            try:
                await self._housekeep()
            except StorageError as error:
                self.fail_storage(error)
                if self.logs.failure is not None:
                    return

    async def _housekeep(self) -> None:
        self.clock.observe()
        self.metrics.wall_clock_steps_total = self.clock.steps_total
        self._partitions.open_missing()
        for key, partition in list(self.partitions.items()):
            if self.partitions.get(key) is not partition:
                continue  # deleted meanwhile, with its files
            partition.log.give_up_old_segments(
                self.clock.trusted_wall_ms(), partition.high_watermark
            )
            # A slice at a time, with requests in between.
            while partition.log.expire_producers(self.clock.steady_ms()):  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        # In a thread, because produce requests must not wait for these syncs.
        await in_thread(self.logs.start_checkpoint(self._partitions.high_watermarks()).run)
        await remove_old_segments(self.partitions, self.environment.run_all)
        await self._save_clock()

    async def _save_clock(self) -> None:
        """Once in a while: what a crash takes of it lets producers expire that much later."""
        reading = self.clock.reading()
        if reading.steady_ms >= self._clock_saved_ms + _CLOCK_SAVED_EVERY_MS:
            await in_thread(partial(self.logs.save_clock, reading))
            self._clock_saved_ms = reading.steady_ms

    # --- stop ---

    async def hand_over(self, within_s: float) -> None:
        """Lets others lead what is led here, while requests are still answered."""
        await self.membership.hand_over(within_s)

    def begin_stop(self) -> None:
        """Lets no fetch wait any longer, so that the connections can be closed soon."""
        self.is_stopping = True
        self.faults.stop()
        for partition in self.partitions.values():
            partition.waiters.wake_fetches()

    async def stop(self) -> None:
        """Closes the logs, then ends the session."""
        await self.close_logs()
        await self.end_session()

    async def close_logs(self) -> None:
        """Ends what appends, flushes, writes snapshots and the clean-shutdown marker.

        Also after a start that was cut short. Raises `StorageError`.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.record_thread.stop()
        if self._has("membership"):
            await self.membership.leave()
        if self._has("producer_ids"):
            await self.producer_ids.close()
        if self._has("_partitions"):
            await self._topic_deletion.close()
            await self._partitions.close()
        if self._has("logs") and self.logs.failure is None:
            # A log without a role yet keeps what it came with.
            held = self._partitions.high_watermarks() if self._has("_partitions") else {}
            clock = self.clock.reading() if self._has("clock") else None
            self.logs.close(
                {**self.logs.high_watermarks, **held}, clock, run_all=self.environment.run_all
            )

    async def end_session(self) -> None:
        """Of this broker with the coordinator: others see it go."""
        if self._has("tree"):
            await self.tree.close()

    def _has(self, part: str) -> bool:
        """Whether `start` has come as far as this attribute."""
        return part in vars(self)
