"""This broker as a cluster member: registered in ZooKeeper, led by a controller, replicating.

`joining.py` does the joining. After that the controller assigns roles by writing state nodes, and
the topic registry is notified.

When the session is lost, all roles are gone at once, and the broker joins again under a new
session. While the session is only in doubt (`SessionGuard`), nothing that needs leadership is
answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from broker.cluster.joining import Joining
from broker.cluster.leadership_log import LeadershipLog
from broker.config.listener_names import NATIVE
from broker.config.loading import Address, Config
from broker.config.topic import TopicConfig
from broker.controller.controller import Controller
from broker.environment import Environment
from broker.essential_task import essential_task
from broker.metadata.live_brokers import LiveBrokers
from broker.metadata.node_data import broker_path
from broker.metadata.registration import (
    BrokerIdInUseError,
    BrokerInfo,
    update_registration,
)
from broker.metadata.topic import Topic
from broker.metadata.topic_registry import TopicRegistry
from broker.metrics import Metrics
from broker.partitions.held import Partitions
from broker.partitions.partition import Partition
from broker.replication.fetcher import FetcherContext
from broker.replication.fetchers import Fetchers
from broker.replication.isr_changes import IsrChanges
from broker.replication.peers import PeerError
from broker.tree.node_tree import Cancel, CoordinationError, NodeTree, SessionState
from broker.tree.session_guard import SessionGuard
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.native.replication import AwaitTopic, read_await_topic_answer
from storage.file_system import StorageError

logger = logging.getLogger(__name__)

SETTLE_S: Final = 1.0
"""How long a leaving broker waits for its followers to catch up."""
TOPIC_CREATED_S: Final = 2.0
"""How long the creator of a topic waits for other brokers to know it."""
REJOIN_PAUSE_S: Final = 0.2


@dataclass(slots=True, frozen=True, kw_only=True)
class Callbacks:
    """What the broker does when its member is in trouble."""

    storage_failed: Callable[[StorageError], None]
    cannot_rejoin: Callable[[], None]
    """Another broker has taken this one's id."""


class ClusterMember:
    """`Membership` of a broker with ZooKeeper."""

    def __init__(
        self,
        config: Config,
        environment: Environment,
        tree: NodeTree,
        registry: TopicRegistry,
        partitions: Partitions,
        *,
        joining: Joining,
        metrics: Metrics,
        steady_ms: Callable[[], int],
        callbacks: Callbacks,
    ) -> None:
        """`steady_ms`: the data directory's clock (`clock.py`)."""
        self._metrics = metrics
        self._config = config
        self._tree = tree
        self._registry = registry
        self._joining = joining
        self._partitions = partitions
        self._callbacks = callbacks
        self._broker_id = config.broker_id
        self._info: BrokerInfo | None = None
        self._is_joined = False
        self._is_leaving = False
        self._doubted_s: float | None = None
        """When, by the loop's time, this session's leaderships came into doubt."""
        self._broker_epoch = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._rejoining: asyncio.Task[None] | None = None
        self._stepping_down: asyncio.Task[None] | None = None
        self._forget_session: Cancel = lambda: None
        self._brokers_known: Mapping[int, BrokerInfo] = {}
        """The registered brokers as of the last time this broker was one of them."""
        self._live = LiveBrokers(tree)
        self._guard = SessionGuard(tree, broker_path(self._broker_id))
        self._peers = environment.open_peers()
        self._fetchers = Fetchers(
            FetcherContext(
                broker_id=self._broker_id,
                broker_epoch=lambda: self._broker_epoch,
                address_of=self._native_address,
                peers=self._peers,
                now_ms=steady_ms,
                metrics=metrics,
                on_failure=callbacks.storage_failed,
            )
        )
        partitions.listen(LeadershipLog(joining, metrics))
        partitions.listen(self._fetchers)
        self._isr_changes = IsrChanges(
            registry,
            partitions.held,
            lag_max_s=config.replica_lag_time_max_ms / 1000,
            is_proved=lambda: self.is_proved,
            registered_epoch=self.registered_epoch,
            read_epoch=self._read_registered_epoch,
            metrics=metrics,
        )
        self.controller = Controller(
            tree,
            registry,
            self._live,
            self._broker_id,
            unclean=lambda topic: (
                TopicConfig.of(config, topic.config).unclean_leader_election_enable
            ),
            now_ms=environment.now_ms,
            elections=metrics.elections,
        )

    # --- Membership ---

    @property
    def is_proved(self) -> bool:
        return self._is_joined and self._guard.is_proved

    @property
    def takes_records(self) -> bool:
        return not self._is_leaving

    @property
    def controller_id(self) -> int:
        return self.controller.controller_id

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        return {broker_id: live.info for broker_id, live in self._live.brokers.items()}

    @property
    def brokers_for_clients(self) -> Mapping[int, BrokerInfo]:
        """The registered brokers, or those registered when this broker last was.

        When the coordinator has been away for long, all sessions end at once and for a moment no
        one is registered. A client that is told so forgets all addresses, and may never ask any
        broker again.
        """
        return self._brokers_known

    def registered_epoch(self, broker_id: int) -> int | None:
        """The broker's epoch; None if it is not registered or is about to leave."""
        live = self._live.brokers.get(broker_id)
        return None if live is None or live.info.is_leaving else live.session_id

    async def _read_registered_epoch(self, broker_id: int) -> int | None:
        """Reads the broker epoch the coordinator has now. Raises `ConnectionLostError`."""
        node = (await self._tree.read_many([broker_path(broker_id)]))[0]
        return None if node is None else node.owner

    def isr_may_change(self, partition: Partition) -> None:
        """Checks whether a follower has caught up."""
        self._isr_changes.consider_progress(partition)

    # --- joining ---

    async def join(self, info: BrokerInfo) -> None:
        """Registers and begins to take part. Raises `CoordinationError`, `BrokerIdInUseError`."""
        self._info = info
        # First of all, since a proof needs several answers.
        self._guard.on_doubt(self._on_doubt)
        self._guard.on_proof(self._on_proof)
        self._tasks = [essential_task(self._guard.run(), "session guard")]
        await self._register()
        self._forget_session = self._tree.on_session(self._on_session)
        await self._registry.follow()
        self._brokers_known = {self._broker_id: info}
        await self._live.start()
        self._on_brokers()
        self._live.listen(self._on_brokers)
        self._tasks += [
            essential_task(self.controller.run(), "controller"),
            essential_task(self._isr_changes.run(), "ISR changes"),
        ]

    async def _register(self) -> None:
        assert self._info is not None
        self._broker_epoch = await self._joining.register(self._info)
        self._guard.restart()
        self._is_joined = True

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            logger.error("the session with the coordinator is lost: giving up all roles")
            self._is_joined = False
            if self._rejoining is not None:
                self._rejoining.cancel()
                self._rejoining = None
            self._partitions.resign()
        elif state is SessionState.CONNECTED and not self._is_joined and self._rejoining is None:
            self._rejoining = essential_task(self._rejoin(), "joining again")

    async def _rejoin(self) -> None:
        """Registers again under the new session; the logs are the same, and so is the tail."""
        while True:
            try:
                await self._register()
                await self._live.refresh()
                break
            except BrokerIdInUseError as error:
                logger.critical("cannot join the cluster again: %s", error)
                self._callbacks.cannot_rejoin()
                return
            except CoordinationError as error:
                logger.warning("cannot join the cluster again yet: %s", error)
                await asyncio.sleep(REJOIN_PAUSE_S)
        logger.info("joined the cluster again")
        self._rejoining = None
        self._partitions.resume()

    def _on_doubt(self) -> None:
        if not self._is_joined:
            return
        self._doubted_s = asyncio.get_running_loop().time()
        self._metrics.leadership_doubts_total += 1
        logger.warning("the coordinator has been silent for too long: acknowledging nothing more")
        for partition in self._partitions.held.values():
            if partition.is_leader:
                partition.waiters.fail(
                    KafkaError(
                        ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        f"{partition.name} may have another leader",
                    )
                )

    def _on_proof(self) -> None:
        """Commits what a flush or an ISR change could not commit during the doubt.

        An ISR change whose outcome is unknown is tried again, now that it can succeed. No follower
        lagged meanwhile: this broker refused all their fetches.
        """
        doubted_s, self._doubted_s = self._doubted_s, None
        now_s = asyncio.get_running_loop().time()
        for partition in self._partitions.held.values():
            if partition.in_sync is not None and doubted_s is not None:
                partition.in_sync.excuse(now_s - doubted_s, now_s)
            partition.advance_high_watermark()
        self._isr_changes.consider_all()

    def _on_brokers(self) -> None:
        if self._broker_id in self._live.brokers:
            self._brokers_known = self.brokers
        self._fetchers.wake()
        self._isr_changes.consider_all()

    def _native_address(self, broker_id: int) -> Address | None:
        live = self._live.brokers.get(broker_id)
        endpoint = None if live is None else live.info.endpoints.get(NATIVE)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    # --- topics ---

    async def topic_created(self, topic: Topic) -> None:
        """Asks all other brokers to reply once they know the topic; some may not answer in time."""
        others = [broker_id for broker_id in self._live.brokers if broker_id != self._broker_id]
        await asyncio.gather(*(self._await_topic(broker_id, topic) for broker_id in others))

    async def _await_topic(self, broker_id: int, topic: Topic) -> None:
        message = AwaitTopic(
            topic=topic.name, topic_id=topic.topic_id, timeout_ms=int(TOPIC_CREATED_S * 1000)
        )
        address = self._native_address(broker_id)
        if address is None:
            return
        try:
            answer = await self._peers.call(
                broker_id, address, message.to_message(), timeout_s=2 * TOPIC_CREATED_S
            )
            read_await_topic_answer(answer)
        except (PeerError, KafkaError, DecodeError) as error:
            logger.info("broker %d does not know %s yet: %s", broker_id, topic.name, error)

    # --- leaving ---

    def storage_failed(self) -> None:
        """Has others lead what this broker led; it stays registered, as one that is leaving.

        Until they do, no ISR is changed: followers lag because their leader cannot be read.
        """
        self._fetchers.end()
        self._isr_changes.end()
        self._stepping_down = essential_task(self._step_down(), "stepping down")

    async def _step_down(self) -> None:
        """Tries until the cluster has been notified, in this session or in the next one."""
        assert self._info is not None
        self._info = replace(self._info, is_leaving=True)
        while True:
            try:
                await update_registration(self._tree, self._info)
                break
            except CoordinationError as error:
                logger.warning("the cluster does not know yet that the disk failed: %s", error)
                await asyncio.sleep(REJOIN_PAUSE_S)

    async def hand_over(self, within_s: float) -> None:
        """Announces the departure and waits until nothing is led here that others could lead.

        First acknowledges what was accepted: the next leader could not acknowledge it to its
        producers.
        """
        if not self._is_joined or self._info is None:
            return
        self._is_leaving = True
        try:
            async with asyncio.timeout(within_s):
                await self._settle()
                await self._have_others_lead(self._info)
        except (CoordinationError, TimeoutError) as error:
            logger.warning("leaving without having handed over everything: %s", error or "too late")

    async def _have_others_lead(self, info: BrokerInfo) -> None:
        """Hands leadership to others. Raises `CoordinationError`."""
        handed_over = asyncio.Event()

        def look(_event: object = None) -> None:
            if not self._leads_what_others_could():
                handed_over.set()

        cancel = self._registry.listen(look)
        try:
            self._info = replace(info, is_leaving=True)
            await update_registration(self._tree, self._info)
            look()
            await handed_over.wait()
        finally:
            cancel()

    async def _settle(self) -> None:
        """Waits, for a limited time, until everything in the logs led here is committed."""
        led = [one for one in self._partitions.held.values() if one.is_leader]
        waits = [
            one.waiters.commit.wait_for(one.log.log_end_offset)
            for one in led
            if one.high_watermark < one.log.log_end_offset
        ]
        if waits:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    await asyncio.gather(*waits, return_exceptions=True)

    def _leads_what_others_could(self) -> bool:
        return any(
            state.leader == self._broker_id
            and any(
                one != self._broker_id and self.registered_epoch(one) is not None
                for one in state.isr
            )
            for topic in self._registry.topics.values()
            for state in topic.states.values()
        )

    async def leave(self) -> None:
        """Stops the controller, replication and following the registry."""
        self._is_joined = False
        self._forget_session()
        maybe = (self._rejoining, self._stepping_down)
        tasks = [*self._tasks, *(task for task in maybe if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._isr_changes.close()
        await self._fetchers.close()
        await self._peers.close()
        await self._live.close()
        await self._registry.close()
