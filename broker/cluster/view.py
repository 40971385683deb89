"""The brokers of the cluster, as one member sees them: who is registered, and how to reach each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from echoless.broker.config.listener_names import NATIVE
from echoless.broker.config.security import SecurityProtocol
from echoless.broker.config.values import Address, PlaintextAddress
from echoless.broker.metadata.live_brokers import LiveBrokers
from echoless.broker.metadata.node_data import broker_path
from echoless.broker.metadata.registration import BrokerInfo
from echoless.broker.tree.node_tree import Cancel, NodeTree

_WITHOUT_TLS: Final = frozenset({SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT})


class ClusterView:
    """The registered brokers, kept up to date from `start` to `close`."""

    def __init__(self, tree: NodeTree, broker_id: int, *, calls_plaintext: bool = False) -> None:
        """`calls_plaintext`: whether brokers that have registered without TLS are called without."""
        self.live = LiveBrokers(tree)
        self.brokers_for_clients: Mapping[int, BrokerInfo] = {}
        """The registered brokers, or those registered when this broker last was.

        When the coordinator has been away for long, all sessions end at once and for a moment no
        broker is registered. A client that gets this answer forgets all addresses, and may never ask any
        broker again.
        """
        self._tree = tree
        self._broker_id = broker_id
        self._calls_plaintext = calls_plaintext

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The registered brokers, by ascending id."""
        return {broker_id: live.info for broker_id, live in self.live.brokers.items()}

    async def start(self, info: BrokerInfo) -> None:
        """Reads which brokers are registered; `info` is this one's. Raises `ConnectionLostError`."""
        self.brokers_for_clients = {self._broker_id: info}
        await self.live.start()
        self._on_brokers()
        self.live.listen(self._on_brokers)

    def listen(self, callback: Callable[[], None]) -> Cancel:
        """Calls back after each change; it must not block or raise."""
        return self.live.listen(callback)

    async def refresh(self) -> None:
        """Brings the view up to date now. Raises `ConnectionLostError`."""
        await self.live.refresh()

    async def close(self) -> None:
        """Stops watching."""
        await self.live.close()

    def _on_brokers(self) -> None:
        if self._broker_id in self.live.brokers:
            self.brokers_for_clients = self.brokers

    def registered_epoch(self, broker_id: int) -> int | None:
        """The broker's epoch; None if it is not registered or is about to leave."""
        live = self.live.brokers.get(broker_id)
        return None if live is None or live.info.is_leaving else live.session_id

    async def read_epoch(self, broker_id: int) -> int | None:
        """Reads the broker epoch that the coordinator has now. Raises `ConnectionLostError`."""
        node = (await self._tree.read_many([broker_path(broker_id)]))[0]
        return None if node is None else node.owner

    def native_address(self, broker_id: int) -> Address | None:
        """The address of the broker's native port; None if it is not registered."""
        live = self.live.brokers.get(broker_id)
        endpoint = None if live is None else live.info.endpoints.get(NATIVE)
        if endpoint is None:
            return None
        is_plaintext = self._calls_plaintext and endpoint.security_protocol in _WITHOUT_TLS
        return (PlaintextAddress if is_plaintext else Address)(endpoint.host, endpoint.port)
