"""Clients on the native port: what producers and consumers share.

A client finds leaders by asking any broker, believes no answer with an older leader epoch, keeps one
connection per broker, and gives a connection up when an answer does not come in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from tests.simulation.connection import ClientConnection, ConnectionBrokenError, Services
from tests.simulation.network import Network
from tests.simulation.observations import Observations, Spot
from tests.simulation.process import Process

REQUEST_TIMEOUT_S: Final = 4.0
BACK_OFF_S: Final = 0.1
NO_LEADER: Final = -1

NONE: Final = 0
OUT_OF_RANGE: Final = 1
RETRIABLE: Final = frozenset({3, 5, 6, 7, 9, 14, 15, 16, 19, 20, 56, 74, 75, 76, 100})
"""Codes after which a client looks for the leader and tries again."""


class NoAnswerError(Exception):
    """The broker cannot be reached, or takes too long."""


class Client:
    """One client program."""

    def __init__(
        self,
        name: str,
        *,
        network: Network,
        services: Services,
        broker_nodes: list[str],
        rng: Random,
        observations: Observations,
    ) -> None:
        self.name = name
        self.process = Process(network.loop, name)
        self.rng = rng
        self.observations = observations
        self._network = network
        self._services = services
        self.broker_nodes = broker_nodes
        self._connections: dict[str, ClientConnection] = {}
        self._leaders: dict[Spot, tuple[str, int, int]] = {}
        """Per partition: the topic's id, the leader epoch, the leader."""

    def connection(self, node: str) -> ClientConnection:
        """The connection to the broker, new if need be. Raises `NoAnswerError`."""
        service = self._services.find(node)
        if service is None:
            raise NoAnswerError(f"{node} is down")
        connection = self._connections.get(node)
        if connection is None or connection.is_broken or connection.service is not service:
            if connection is not None:
                connection.abandon()
            connection = ClientConnection(self._network, self.name, self.process, service)
            self._connections[node] = connection
        return connection

    async def ask(
        self, connection: ClientConnection, message: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """One message and its answer. Raises `NoAnswerError`, the connection being given up then."""
        return await self.answered(connection, connection.send(message), timeout_s)

    async def answered(
        self, connection: ClientConnection, future: asyncio.Future[dict[str, Any]], timeout_s: float
    ) -> dict[str, Any]:
        """The answer to what was sent. Raises `NoAnswerError`, the connection being given up then."""
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            connection.abandon()
            raise NoAnswerError(f"no answer in {timeout_s} s") from None
        except ConnectionBrokenError:
            raise NoAnswerError("the connection broke") from None

    async def ask_anyone(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of some broker, sooner or later."""
        while True:
            node = self.rng.choice(self.broker_nodes)
            try:
                return await self.ask(self.connection(node), message, REQUEST_TIMEOUT_S)
            except NoAnswerError:
                await self.back_off()

    async def leader_of(self, spot: Spot) -> str:
        """The node of the partition's leader, as the newest metadata has it."""
        while True:
            await self._refresh(spot)
            known = self._leaders.get(spot)
            if known is not None and known[2] != NO_LEADER:
                return f"broker-{known[2]}"
            await self.back_off()

    async def _refresh(self, spot: Spot) -> None:
        answer = await self.ask_anyone({"type": "metadata", "topics": [spot.topic]})
        if not answer.get("brokers"):
            self.observations.find(
                f"{self.name} is told of no broker: some clients forget all then"
            )
        for topic in answer.get("topics", ()):
            for partition in topic["partitions"]:
                place = Spot(topic["name"], partition["partition_index"])
                found = topic["topic_id"], partition["leader_epoch"], partition["leader_id"]
                known = self._leaders.get(place)
                if known is None or known[0] != found[0] or known[1] <= found[1]:
                    self._leaders[place] = found

    async def back_off(self) -> None:
        """A short break."""
        await asyncio.sleep(BACK_OFF_S * (0.5 + self.rng.random()))


def error_code(answer: Mapping[str, Any]) -> int:
    """The error code of any native answer; 0 is success."""
    code: int = answer["error"]["code"]
    return code
