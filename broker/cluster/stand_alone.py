"""A broker with the embedded coordinator: the only one of its cluster, which leads all it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from echoless.broker.metadata.producer_id_block import NO_ID
from echoless.broker.metadata.registration import (
    BrokerInfo,
    Endpoint,
    register_broker,
    update_registration,
)
from echoless.broker.tree.node_tree import SessionState

if TYPE_CHECKING:
    from echoless.broker.clock import Clock
    from echoless.broker.metadata.topic import Topic
    from echoless.broker.metadata.topic_registry import TopicRegistry
    from echoless.broker.partitions.partition import Partition
    from echoless.broker.tree.node_tree import Cancel, NodeTree


class StandAlone:
    """`ClusterMembership` of the one broker of its cluster."""

    is_proved = True
    """No other broker can take its place."""
    takes_records = True
    unready_reason = None
    unproved_s = 0.0

    def __init__(self, tree: NodeTree, registry: TopicRegistry, broker_id: int) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self._tree = tree
        self._registry = registry
        self.broker_id = broker_id
        self._forget_session: Cancel | None = None

    @property
    def controller_id(self) -> int:
        return self.broker_id

    @property
    def brokers_for_clients(self) -> Mapping[int, BrokerInfo]:
        return self.brokers

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Calls back once when the session ends, unless `leave` was called first."""

        def look(state: SessionState) -> None:
            if state is SessionState.LOST:
                callback()

        self._forget_session = self._tree.on_session(look)

    def registered_epoch(self, broker_id: int) -> int | None:
        """None: no other broker exists whose fetches could count."""
        return 0 if broker_id in self.brokers else None

    def isr_may_change(self, partition: Partition) -> None:
        """Does nothing: no followers exist."""

    async def join(self, info: BrokerInfo) -> None:
        """Leads all partitions, each in a new epoch. Raises `CoordinationError`."""
        await register_broker(self._tree, info)
        self.brokers = {self.broker_id: info}
        await self._registry.claim_leadership(self.broker_id)

    async def advertise(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Registers other addresses. Raises `CoordinationError`."""
        info = self.brokers[self.broker_id]._replace(endpoints=endpoints)
        await update_registration(self._tree, info)
        self.brokers = {self.broker_id: info}

    async def topic_created(self, topic: Topic) -> None:
        """Does nothing: the topic is known here already."""

    def storage_failed(self) -> None:
        """Does nothing: clients get errors until a restart."""

    async def hand_over(self, within_s: float) -> None:
        """Does nothing: no other broker could lead instead."""

    async def ask(
        self, broker_id: int, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        """Raises `PeerError`: no other broker exists."""
        from echoless.broker.replication.peer_connection import PeerError

        del message, timeout_s
        raise PeerError(f"there is no broker {broker_id} in this cluster")

    async def clock_doubt(self, clock: Clock) -> None:
        """Has no doubt: no other clock exists to compare with."""

    @property
    def clocks_ahead_ms(self) -> Mapping[int, int]:
        """Empty."""
        return {}

    async def note_tree(self, last_id: int) -> int:
        """Notes nothing: every block is claimed here."""
        del last_id
        return NO_ID

    async def confirm_claim(self, last_id: int) -> None:
        """Does nothing: no other broker exists."""

    async def leave(self) -> None:
        """Does nothing: the session ends with the tree."""
        if self._forget_session is not None:
            self._forget_session()
