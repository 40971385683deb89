"""One broker: how it starts, what it does when the disk or the session fails, and how it stops.

Start, in this order, so that a crash at any point leaves nothing half claimed:
1. take the data directory (lock);
2. open the coordination tree, agree on the cluster id, load the topics;
3. open the logs, each with its topic's configuration, recovering what a crash left;
4. join the cluster (`membership.py`), open the partitions and assume their roles;
5. claim a block of producer ids. From then on requests can be answered, with what `services` offers.
In a cluster step 2 comes first: a new data directory takes the cluster's id.
Stop is the reverse. `serve.py` drives both and owns the sockets; `assembly.py` makes brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.clock import NOT_COMPARED, Clock
from echoless.broker.cluster.agreed_cluster_id import agreed_cluster_id
from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.cluster.own_listeners import OwnListeners
from echoless.broker.config.advertised import Advertised
from echoless.broker.config.feature_levels import SUPPORTED
from echoless.broker.config.loading import Config, LogFlush
from echoless.broker.config.names import Authorizer, ProducerIdBinding
from echoless.broker.config.topic import to_log_config
from echoless.broker.decisions.decisions import Decisions
from echoless.broker.environment import Environment
from echoless.broker.essential_task import essential_task
from echoless.broker.faults.faults import FaultInjection
from echoless.broker.groups.service import GroupService
from echoless.broker.housekeeping import Housekeeping
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metadata.broker_settings import BrokerSettings
from echoless.broker.metadata.features import Features
from echoless.broker.metadata.old_copy import check_epochs_within
from echoless.broker.metadata.producer_ids import ProducerIds
from echoless.broker.metadata.registration import BrokerInfo
from echoless.broker.metadata.seen_tree import SeenTree
from echoless.broker.metadata.topic import TopicDeleted, TopicEvent
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.metrics import Metrics
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.open_connections import OpenConnections
from echoless.broker.network.unsent_answers import UNSENT_BYTES_MAX, UnsentAnswers
from echoless.broker.partitions.cleaner import Cleaner
from echoless.broker.partitions.disk_queue import in_thread
from echoless.broker.partitions.flusher import Flusher
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.partition_registry import PartitionRegistry
from echoless.broker.partitions.scrubber import Scrubber
from echoless.broker.partitions.topic_deletion import TopicDeletion
from echoless.broker.quotas.quotas import Quotas
from echoless.broker.records.record_thread import RecordThread
from echoless.broker.services import Services
from echoless.broker.transactions.service import TransactionService
from echoless.broker.tree.node_tree import CoordinationError
from echoless.broker.tree.patient_tree import PatientTree
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.storage.file_system import OutOfDescriptorsError, StorageError
from echoless.storage.log_directory import LogDirectory
from echoless.storage.meta_properties import read_cluster_id
from echoless.storage.producer_id_checkpoint import SeenCounts

if TYPE_CHECKING:
    from echoless.broker.authentication.admin_tokens import Tokens
    from echoless.broker.authentication.producer_binding import ProducerBinding
    from echoless.broker.authentication.session import Logins
    from echoless.broker.authentication.tls import BrokerTls
    from echoless.broker.authorization.access import Access
    from echoless.broker.transactions.hanging import HangingTransactions
    from echoless.broker.tree.node_tree import NodeTree
    from echoless.storage.log_config import LogConfig

logger = logging.getLogger(__name__)
limited: Final = LimitedLog(logger)

_FLUSH_INTERVAL_S: Final = 5.0
_HANGING_AFTER_S: Final = 60.0
"""Time after the start at which the first look for hanging transactions is taken."""


class Wiring(NamedTuple):
    """Builders of the parts that depend on what a start has found (`assembly.py`)."""

    new_membership: Callable[[Broker], ClusterMembership]
    new_groups: Callable[[Broker], GroupService]
    new_transactions: Callable[[Broker], TransactionService]
    new_services: Callable[[Broker], Services]
    new_hanging: Callable[[Broker], Awaitable[HangingTransactions]]


class Broker:
    """One broker, from `start` to `stop`. All of it runs on one event loop."""

    logs: LogDirectory
    registry: TopicRegistry
    features: Features
    membership: ClusterMembership
    listeners: OwnListeners
    clock: Clock
    producer_ids: ProducerIds
    tree: NodeTree
    replicas: PartitionRegistry
    topic_deletion: TopicDeletion
    housekeeping: Housekeeping
    groups: GroupService
    transactions: TransactionService
    services: Services
    """The parts that requests may use; complete when `start` returns."""

    def __init__(
        self,
        config: Config,
        environment: Environment,
        *,
        metrics: Metrics,
        decisions: Decisions,
        faults: FaultInjection,
        wiring: Wiring,
        tls: BrokerTls | None = None,
        logins: Logins | None = None,
        admin_tokens: Tokens | None = None,
    ) -> None:
        """`tls` and `logins` are None while no listener asks for them."""
        self.config = config
        self.environment = environment
        self.metrics = metrics
        self.decisions = decisions
        self.faults = faults
        self.tls = tls
        self.logins = logins
        self.admin_tokens = admin_tokens
        self._wiring = wiring
        self.request_memory = MemoryBudget(config.request_size_max)
        self.unsent_answers = UnsentAnswers(UNSENT_BYTES_MAX)
        self.open_connections = OpenConnections()
        """The addresses of the Kafka and native ports."""
        self.connection_ids = itertools.count(1)
        """Numbers of the connections to all ports, in the order in which they are accepted."""
        self.started_ms = environment.now_ms()
        self.partitions: Mapping[tuple[str, int], Partition] = {}
        """The partitions in `replicas`, by topic and index."""
        self.session_lost = asyncio.Event()
        """Set when the broker has lost its place in the cluster: it must end, and may start again."""
        self.starting: str | None = "reading the data directory"
        """The step that the start has reached; None once requests are answered."""
        self.stopping = asyncio.Event()
        """Set when requests that wait for data are to wait no longer."""
        self.record_thread = RecordThread()
        self.settings = BrokerSettings(config)
        self.quotas = Quotas(metrics)
        self.binding: ProducerBinding | None = None
        """Tells whose producer ids are; None: they are everyone's."""
        self.access: Access | None = None
        """Decides what each client may do; None: everything."""
        self.is_new_directory = False
        """Whether this is the first start on the data directory of a cluster's member."""
        self._tasks: list[asyncio.Task[None]] = []
        self._flusher = Flusher(
            interval_s=0 if config.log_flush is LogFlush.COMMIT else _FLUSH_INTERVAL_S,
            on_failure=self.fail_storage,
            run_all=self.environment.run_all,
        )

    # --- start ---

    async def start(self, advertised: Mapping[str, Advertised]) -> None:
        """Does everything up to the first request; `advertised`: by listener, the addresses that its clients are given.

        Raises `StorageError`, `CoordinationError`.
        """
        if self.config.zookeeper_hosts is None:
            self._claim_directory(None)
            self.tree = await self.environment.open_tree(self.config)
            self.cluster_id = await self._agreed_cluster_id(self.logs.cluster_id)
        else:
            self.tree = PatientTree(await self.environment.open_tree(self.config))
            own = read_cluster_id(self.environment.file_system, self.config.data_dir)
            self.is_new_directory = own is None
            self.cluster_id = await self._agreed_cluster_id(own)
            self._claim_directory(self.cluster_id)
        self.registry = TopicRegistry(
            self.tree, rng=self.environment.rng, new_uuid=self.environment.new_uuid
        )
        await self.registry.load()
        await self._follow_features()
        is_shared = self.config.zookeeper_hosts is not None
        await self.settings.start(self.tree, is_shared=is_shared)
        self.clock = self._new_clock()
        await self._open_logs()
        await self._refuse_an_old_coordinator()
        self.replicas = PartitionRegistry(
            self.config,
            self.logs,
            self.registry,
            self._flusher,
            now_ms=self.clock.steady_ms,
            wall_ms=self.environment.now_ms,
            on_failure=self.fail_storage,
            run_all=self.environment.run_all,
        )
        self.settings.listen(self.replicas.settings_changed)
        self.topic_deletion = TopicDeletion(self.registry, self.replicas)
        self.replicas.set_strays_aside()
        self.partitions = self.replicas.held
        self.membership = self._wiring.new_membership(self)
        self.groups = self._wiring.new_groups(self)
        self.replicas.listen(self.groups)
        self.transactions = self._wiring.new_transactions(self)
        self.replicas.listen(self.transactions)
        self.registry.listen(self._on_topic_event)
        await self._join(advertised)
        await self.replicas.take_up(self.membership)
        await self.producer_ids.start()
        if self.config.producer_id_binding is ProducerIdBinding.PRINCIPAL:
            from echoless.broker.authentication.producer_binding import ProducerBinding

            self.binding = await ProducerBinding.open(self.tree)
        await self.quotas.start(self.tree, is_shared=is_shared)
        if self.logins is not None:
            await self.logins.start(self.tree)
        self._begin_tasks()
        if self.config.authorizer is Authorizer.ACL:
            from echoless.broker.authorization.access import Access

            self.access = Access(self.config, self.tree, self.environment.rng)
            await self.access.start()
        self.services = self._wiring.new_services(self)
        if isinstance(self.tree, PatientTree):
            self.tree.end_patience()
        self.starting = None

    async def _join(self, advertised: Mapping[str, Advertised]) -> None:
        self.listeners = OwnListeners(advertised, self.membership, self.config.security_protocol)
        await self.membership.join(self._broker_info())
        if self.config.zookeeper_hosts is not None:
            self.logs.vouch_for_tail()  # no partition state relies any more on what a power failure took

    def _begin_tasks(self) -> None:
        """Begins what is done in the background for as long as the broker runs."""
        self.housekeeping = Housekeeping(
            self.logs,
            self.replicas,
            self.clock,
            self.metrics,
            run_all=self.environment.run_all,
            on_failure=self.fail_storage,
            doubt_of=self.membership.clock_doubt,
        )
        self._tasks = [
            essential_task(self._flusher.run(), "flusher"),
            essential_task(self.housekeeping.run(), "housekeeping"),
            essential_task(self.groups.run(), "expiry of offsets"),
            essential_task(self._end_hanging(), "hanging transactions"),
        ]
        if self.config.log_scrub_bytes_per_second:
            scrubber = self._scrubber()
            self.housekeeping.listen(scrubber.note_changed)
            self._tasks.append(essential_task(scrubber.run(), "scrubber"))
        self.cleaner = Cleaner(
            self.replicas.held,
            self.logs.uncleanable,
            self.config,
            self.clock,
            self.metrics,
            on_failure=self.fail_storage,
            has_processes=self.environment.has_processes,
        )
        self.settings.listen(self.cleaner.settings_changed)
        self.housekeeping.listen(self.cleaner.note_changed)
        self.replicas.listen_to_settings(self.cleaner.note_changed)
        self._tasks.append(essential_task(self.cleaner.run(), "cleaner"))

    async def _end_hanging(self) -> None:
        """Looks for hanging transactions, some time after the start."""
        await asyncio.sleep(_HANGING_AFTER_S)
        while self.starting is not None:  # noqa: ASYNC110 - a start may be patient
            await asyncio.sleep(_HANGING_AFTER_S)
        hanging = await self._wiring.new_hanging(self)
        self.housekeeping.listen(hanging.note_changed)
        await hanging.run()

    async def _follow_features(self) -> None:
        is_shared = self.config.zookeeper_hosts is not None
        self.features = Features(self.tree, self.registry.topics, is_shared=is_shared)
        await self.features.start()

    def _new_clock(self) -> Clock:
        """Resumes the directory's clock; that of a cluster's member is compared with the others' before it deletes."""
        world = self.environment
        clock = Clock(world.now_ms, world.monotonic_ms, self.logs.last_clock())
        if self.config.zookeeper_hosts is not None:
            clock.set_doubt(NOT_COMPARED)
        return clock

    async def _open_logs(self) -> None:
        """Opens the logs one at a time, and says on the admin port how many are open."""
        opening = self.logs.opening(
            self.clock.steady_ms(),
            self._log_config,
            is_committed=self.config.log_flush is LogFlush.COMMIT,
            run_all=self.environment.run_all,
        )
        with contextlib.closing(opening):
            for opened, count in opening:
                self.starting = f"{opened} of {count} logs are open"
                await asyncio.sleep(0)
        self.metrics.recovered(log.recovery for log in self.logs.logs.values())
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
        """Raises `CoordinationError` before anything is written to the tree, or removed because of it."""
        self.seen_tree = SeenTree(
            self.tree,
            self.config.broker_id,
            self.logs.seen_counts(),
            save=self._save_seen_counts,
            is_marked=self.config.zookeeper_hosts is not None,
        )
        self.producer_ids = ProducerIds(
            self.tree,
            self.config.broker_id,
            self.config.producer_id_block_size,
            seen=self.seen_tree,
            confirm=self._confirm_claim,
        )
        await self.seen_tree.check()
        await check_epochs_within(self.registry, self.logs)
        self.registry.check_tree = self.seen_tree.check

    async def _save_seen_counts(self, seen: SeenCounts) -> None:
        try:
            await in_thread(partial(self.logs.save_seen_counts, seen))
        except StorageError as error:
            self.fail_storage(error)
            raise CoordinationError(f"cannot note claimed producer ids: {error}") from error

    async def _confirm_claim(self, last_id: int) -> None:
        await self.membership.confirm_claim(last_id)

    def _on_topic_event(self, event: TopicEvent) -> None:
        self.groups.on_topic_event(event)
        self.transactions.on_topic_event(event)
        if isinstance(event, TopicDeleted):
            self.producer_ids.leave_block()

    async def _agreed_cluster_id(self, own: str | None) -> str:
        return await agreed_cluster_id(self.tree, self.config, self.environment, own)

    def _broker_info(self) -> BrokerInfo:
        return BrokerInfo(
            broker_id=self.config.broker_id,
            endpoints=self.listeners.endpoints(),
            started_ms=self.environment.now_ms(),
            rack=self.config.broker_rack,
            features=SUPPORTED,
        )

    def _log_config(self, topic: str) -> LogConfig:
        """The configuration of the topic's logs; without overrides if the topic is gone."""
        known = self.registry.topics.get(topic)
        return to_log_config(self.config, topic, {} if known is None else known.config)

    # --- while it runs ---

    @property
    def unserved_topics(self) -> Mapping[str, str]:
        """Topics of which a setting cannot be read, with the reason (`partitions/unserved_topics.py`)."""
        return self.replicas.unserved.reasons

    def fail_storage(self, error: StorageError) -> None:
        """Takes the log directory offline: nothing is acknowledged until a restart."""
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
        """Logs it; nothing is in doubt: what was refused may be tried again, and will succeed in time."""
        self.metrics.descriptors_lacked_total += 1
        message = "no file descriptor is left, what needs one is refused: %s"
        limited.log(logging.ERROR, "", message, error)

    def lose_session(self) -> None:
        """Ends a stand-alone broker with its session."""
        logger.critical("the session with the coordinator is lost; stopping")
        self.replicas.resign()
        self.session_lost.set()

    # --- stop ---

    async def hand_over(self, within_s: float) -> None:
        """Lets other brokers lead what is led here, while requests are still answered."""
        await self.membership.hand_over(within_s)

    def begin_stop(self) -> None:
        """Ends the wait of every fetch, so that the connections can be closed soon."""
        self.stopping.set()
        self.faults.stop()
        for partition in self.partitions.values():
            partition.waiters.wake_fetches()

    async def stop(self) -> None:
        """Closes the logs, then ends the session."""
        await self.close_logs()
        await self.end_session()

    async def close_logs(self) -> None:
        """Ends what appends, flushes, writes snapshots and the clean-shutdown marker.

        Works after a start that was cut short, too. Raises `StorageError`.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.record_thread.stop()
        await self.settings.close()
        await self.quotas.close()
        await self._close_coordinators()
        if self.access is not None:
            await self.access.close()
        if self.logins is not None:
            await self.logins.close()
        if self._has("membership"):
            await self.membership.leave()
        if self._has("features"):
            await self.features.close()
        if self._has("producer_ids"):
            await self.producer_ids.close()
        if self._has("replicas"):
            await self.topic_deletion.close()
            await self.replicas.close()
        if self._has("logs"):
            # A log without a role yet keeps what it came with.
            held = self.replicas.high_watermarks() if self._has("replicas") else {}
            clock = self.clock.reading() if self._has("clock") else None
            self.logs.close(
                {**self.logs.high_watermarks, **held}, clock, run_all=self.environment.run_all
            )

    async def _close_coordinators(self) -> None:
        if self._has("groups"):
            await self.groups.close()
        if self._has("transactions"):
            await self.transactions.close()

    async def end_session(self) -> None:
        """Ends this broker's session with the coordinator: other brokers see it leave."""
        if self._has("tree"):
            await self.tree.close()

    def _has(self, part: str) -> bool:
        """Whether `start` has come as far as this attribute."""
        return part in vars(self)
