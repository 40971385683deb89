"""This broker as a cluster member: registered in ZooKeeper, led by a controller, replicating.

`joining.py` does the joining. After that the controller assigns roles by writing state nodes, and
the topic registry is notified.

When the session is lost, all roles are gone at once, and the broker joins again under a new
session. While the session is only in doubt (`SessionGuard`), nothing that needs leadership is
answered. `member_state.py` has the states and the transitions between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from echoless.broker.clock import Clock
from echoless.broker.cluster.disk_failure import DiskFailure
from echoless.broker.cluster.joining import Joining
from echoless.broker.cluster.leadership_doubt import LeadershipDoubt
from echoless.broker.cluster.leadership_log import LeadershipLog
from echoless.broker.cluster.leaving import Leaving
from echoless.broker.cluster.member_state import ClusterMemberState, MemberEvent, next_state
from echoless.broker.cluster.peer_clocks import PeerClocks
from echoless.broker.cluster.topic_creation import TopicCreation
from echoless.broker.cluster.tree_watch import TreeWatch
from echoless.broker.cluster.view import ClusterView
from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from echoless.broker.config.loading import Config
from echoless.broker.config.names import FeatureUpgrades
from echoless.broker.config.topic import topic_in_force
from echoless.broker.controller.controller import Controller
from echoless.broker.environment import Environment
from echoless.broker.essential_task import essential_task
from echoless.broker.limited_log import COORDINATOR, RetryLog
from echoless.broker.metadata.features import Features
from echoless.broker.metadata.node_data import broker_path
from echoless.broker.metadata.old_copy import OldCopyError
from echoless.broker.metadata.registration import BrokerIdInUseError, BrokerInfo, Endpoint
from echoless.broker.metadata.seen_tree import SeenTree
from echoless.broker.metadata.topic import Topic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.partition_registry import PartitionRegistry
from echoless.broker.replication.fetcher import FetcherContext
from echoless.broker.replication.fetchers import Fetchers
from echoless.broker.replication.isr_changes import IsrChanges
from echoless.broker.replication.peer_connection import PeerError
from echoless.broker.tree.node_tree import (
    Cancel,
    ConnectionLostError,
    CoordinationError,
    NodeTree,
    SessionState,
)
from echoless.broker.tree.refresher import Refresher
from echoless.broker.tree.session_guard import SessionGuard
from echoless.storage.file_system import StorageError

logger = logging.getLogger(__name__)
limited: Final = RetryLog(logger)

REJOIN_PAUSE_S: Final = 0.2


@dataclass(slots=True, frozen=True, kw_only=True)
class Callbacks:
    """The broker's reactions to trouble of its member."""

    storage_failed: Callable[[StorageError], None]
    cannot_rejoin: Callable[[], None]
    """Another broker has taken this one's id, or the coordinator's data is an old copy."""


class ClusterMember:
    """`ClusterMembership` of a broker with ZooKeeper."""

    def __init__(
        self,
        config: Config,
        environment: Environment,
        tree: NodeTree,
        registry: TopicRegistry,
        partitions: PartitionRegistry,
        *,
        features: Features,
        joining: Joining,
        seen: SeenTree,
        is_new_directory: bool,
        metrics: Metrics,
        steady_ms: Callable[[], int],
        callbacks: Callbacks,
    ) -> None:
        """`steady_ms`: the data directory's clock (`clock.py`)."""
        self.broker_id = config.broker_id
        self._state = ClusterMemberState.STARTING
        self._tree = tree
        self._registry = registry
        self._joining = joining
        self._partitions = partitions
        self._callbacks = callbacks
        self._tasks: list[asyncio.Task[None]] = []
        self._rejoining: asyncio.Task[None] | None = None
        self._rejoin_problem = ""
        """Why the last attempt to join again failed."""
        self._forget_session: Cancel = lambda: None
        self._view = view = ClusterView(
            tree, config.broker_id, calls_plaintext=config.native_accepts_plaintext
        )
        self._guard = SessionGuard(tree, broker_path(config.broker_id))
        self._peers = environment.open_peers()
        self._fetchers = Fetchers(
            FetcherContext(
                broker_id=config.broker_id,
                broker_epoch=lambda: joining.broker_epoch,
                address_of=view.native_address,
                peers=self._peers,
                log_changes=partitions.log_changes,
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
            registered_epoch=view.registered_epoch,
            read_epoch=view.read_epoch,
            metrics=metrics,
        )
        self._doubt = LeadershipDoubt(
            partitions.held,
            self._isr_changes,
            metrics,
            session_timeout_s=lambda: tree.session_timeout_s,
        )
        self._tree_watch = TreeWatch(
            config.broker_id,
            tree,
            seen,
            registry,
            view=view,
            peers=self._peers,
            on_old_copy=self._end_on_old_copy,
        )
        self._peer_clocks = PeerClocks(
            config.broker_id, view, self._peers, is_new_directory=is_new_directory
        )
        self._topic_creation = TopicCreation(config.broker_id, view, self._peers)
        self._leaving = Leaving(
            config.broker_id, registry, partitions.held, view=view, joining=joining
        )
        self._unserved = Refresher("unserved topics", self._announce_unserved)
        partitions.unserved.on_change = self._unserved.ask
        self._disk_failure = DiskFailure(joining, self._fetchers, self._isr_changes)
        self.controller = Controller(
            tree,
            registry,
            view.live,
            config.broker_id,
            unclean=lambda topic: (
                topic_in_force(
                    config, topic.name, topic.config
                ).config.unclean_leader_election_enable
            ),
            now_ms=environment.now_ms,
            elections=metrics.elections,
            features=features if config.feature_upgrades is FeatureUpgrades.AUTO else None,
            internal_replicas={
                name: internal.replication_factor(config)
                for name, internal in INTERNAL_TOPICS.items()
            },
        )

    async def settings_changed(self, names: frozenset[str]) -> None:
        """Has the controller use a new rule for unclean elections, if this broker is it."""
        if "unclean_leader_election_enable" in names:
            self.controller.look_at_all_again()

    # --- what the cluster is asked ---

    @property
    def is_proved(self) -> bool:
        return self._state.is_joined and self._guard.is_proved

    @property
    def takes_records(self) -> bool:
        return not self._state.is_leaving

    @property
    def unready_reason(self) -> str | None:
        if self._state.is_joined and self._state.is_leaving:
            return "this broker is about to stop, and has others lead"
        if self.is_proved:
            return None
        if self._rejoining is not None and self._rejoin_problem:
            return f"this broker cannot join the cluster again: {self._rejoin_problem}"
        session = self._tree.session_state.value
        since = f"for {self.unproved_s:.0f} s this broker has had no proof of its session, which is {session}"
        if self._tree.session_state is SessionState.CONNECTED:
            return since
        return f"{since}: {self._tree.session_problem}"

    @property
    def unproved_s(self) -> float:
        return self._guard.unproved_s

    @property
    def controller_id(self) -> int:
        return self.controller.controller_id

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        return self._view.brokers

    @property
    def brokers_for_clients(self) -> Mapping[int, BrokerInfo]:
        return self._view.brokers_for_clients

    def registered_epoch(self, broker_id: int) -> int | None:
        """The broker's epoch; None if it is not registered or is about to leave."""
        return self._view.registered_epoch(broker_id)

    def isr_may_change(self, partition: Partition) -> None:
        """Checks whether a follower has caught up."""
        self._isr_changes.consider_progress(partition)

    async def topic_created(self, topic: Topic) -> None:
        """Waits, for a limited time, until all other brokers know the topic."""
        await self._topic_creation.until_known(topic)

    # --- joining, and joining again ---

    async def join(self, info: BrokerInfo) -> None:
        """Registers and begins to take part. Raises `CoordinationError`, `BrokerIdInUseError`."""
        # First of all, since a proof needs several answers.
        self._guard.on_doubt(self._on_doubt)
        self._guard.on_proof(self._doubt.end)
        self._tasks = [essential_task(self._guard.run(), "session guard")]
        await self._register(info)
        self._on_registered()
        self._forget_session = self._tree.on_session(self._on_session)
        await self._registry.follow()
        await self._view.start(info)
        self._on_brokers()
        self._view.listen(self._on_brokers)
        await self._tree_watch.start()
        self._unserved.start()
        self._tasks += [
            essential_task(self.controller.run(), "controller"),
            essential_task(self._isr_changes.run(), "ISR changes"),
        ]

    async def _register(self, info: BrokerInfo) -> None:
        """Registers, again after a lost answer or session, for as long as a session lasts. Raises as `join`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._tree.session_timeout_s
        while True:
            try:
                await self._joining.register(info)
            except ConnectionLostError as error:
                if loop.time() >= until_s:
                    raise
                logger.warning("cannot register yet: %s", error)
                await asyncio.sleep(REJOIN_PAUSE_S)
            else:
                return

    def _on_registered(self) -> None:
        self._guard.restart()
        self._note(MemberEvent.REGISTERED)

    def _note(self, event: MemberEvent) -> None:
        self._state = next_state(self._state, event)

    def _on_session(self, session: SessionState) -> None:
        before = self._state
        if session is SessionState.LOST:
            logger.error("the session with the coordinator is lost: giving up all roles")
            self._note(MemberEvent.SESSION_LOST)
            if self._rejoining is not None:
                self._rejoining.cancel()
                self._rejoining = None
            self._partitions.resign()
            if self._tree.old_copy:
                self._end_on_old_copy(self._tree.old_copy)
        elif session is SessionState.CONNECTED:
            self._tree_watch.look()
            self._note(MemberEvent.SESSION_CONNECTED)
            if self._state is not before:
                self._rejoining = essential_task(self._rejoin(), "joining again")

    async def _rejoin(self) -> None:
        """Registers again under the new session; the logs are the same, and so is the tail."""
        while True:
            try:
                await self._joining.register_again()
                self._on_registered()
                await self._view.refresh()
                break
            except BrokerIdInUseError as error:
                logger.critical("cannot join the cluster again: %s", error)
                self._callbacks.cannot_rejoin()
                return
            except OldCopyError as error:
                self._end_on_old_copy(error)
                return
            except CoordinationError as error:
                message = "cannot join the cluster again yet: %s"
                limited.log(logging.WARNING, COORDINATOR, message, error)
                self._rejoin_problem = str(error)
                await asyncio.sleep(REJOIN_PAUSE_S)
        logger.info("joined the cluster again")
        self._rejoining, self._rejoin_problem = None, ""
        self._partitions.resume()

    def _end_on_old_copy(self, problem: OldCopyError | str) -> None:
        """Gives up all roles, for another broker may have been given them in this tree, and ends.

        The next start decides, by its data directory, whether this tree may be served.
        """
        logger.critical("stopping: %s", problem)
        self._partitions.resign()
        self._callbacks.cannot_rejoin()

    def _on_doubt(self) -> None:
        if self._state.is_joined:
            self._doubt.begin()

    def _on_brokers(self) -> None:
        self._fetchers.wake()
        self._isr_changes.consider_all()

    async def advertise(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Registers other addresses. Raises `CoordinationError`, after which the registration becomes what it was."""
        try:
            await self._joining.announce_endpoints(endpoints)
        except CoordinationError:
            self._unserved.ask()  # the outcome may be unknown; it writes all of the registration
            raise
        with contextlib.suppress(
            ConnectionLostError
        ):  # then the watch brings it, as to other brokers
            await self._view.refresh()

    async def _announce_unserved(self) -> None:
        await self._joining.announce_unserved(frozenset(self._partitions.unserved.reasons))

    # --- leaving ---

    def storage_failed(self) -> None:
        """Has others lead what this broker led; it stays registered, as one that is leaving."""
        self._disk_failure.step_down()

    async def hand_over(self, within_s: float) -> None:
        """Takes no more records, and has others lead what is led here."""
        if self._state.is_joined:
            self._note(MemberEvent.HAND_OVER)
            await self._leaving.hand_over(within_s)

    async def ask(
        self, broker_id: int, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        """Asks over the native port of the broker, if it is registered."""
        address = self._view.native_address(broker_id)
        if address is None:
            raise PeerError(f"there is no broker {broker_id} in this cluster now")
        return await self._peers.call(broker_id, address, message, timeout_s=timeout_s)

    async def clock_doubt(self, clock: Clock) -> str | None:
        """Compares the clock with the other brokers'; says why nothing may be deleted by time, None if it may."""
        return await self._peer_clocks.doubt(clock)

    @property
    def clocks_ahead_ms(self) -> Mapping[int, int]:
        """Milliseconds that the clock is ahead of the other brokers', by broker id, as last compared."""
        return self._peer_clocks.ahead_ms

    async def note_tree(self, last_id: int) -> int:
        """Notes the newest block of producer ids unless one up to `last_id` is noted; returns the last id noted."""
        return await self._tree_watch.note(last_id)

    async def confirm_claim(self, last_id: int) -> None:
        """Has the other brokers note a block of producer ids. Raises `OldCopyError`, `CoordinationError`."""
        await self._tree_watch.confirm(last_id)

    async def leave(self) -> None:
        """Stops the controller, replication and following the registry."""
        self._note(MemberEvent.LEAVE)
        self._forget_session()
        tasks = [*self._tasks, *([] if self._rejoining is None else [self._rejoining])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._doubt.close()
        await self._tree_watch.close()
        await self._disk_failure.close()
        await self._unserved.close()
        await self._isr_changes.close()
        await self._fetchers.close()
        await self._peers.close()
        await self._view.close()
        await self._registry.close()
