"""This broker's place in its cluster, as the rest of the broker sees it.

Two classes implement it: `StandAlone` (`stand_alone.py`) for a broker that is its whole cluster, and
`ClusterMember` (`member.py`) for one with ZooKeeper, a controller and replication.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from echoless.broker.metadata.registration import BrokerInfo, Endpoint
from echoless.broker.partitions.fencing import Fencing
from echoless.broker.partitions.partition import Partition

if TYPE_CHECKING:
    from echoless.broker.clock import Clock
    from echoless.broker.metadata.topic import Topic


class ClusterMembership(Fencing[Partition], Protocol):
    """The cluster's brokers, and the steps of this one's way in and out of it."""

    @property
    def broker_id(self) -> int:
        """This broker's id."""

    @property
    def controller_id(self) -> int:
        """The controller's broker id; -1 if there is none."""

    @property
    def unready_reason(self) -> str | None:
        """Why the cluster lets this broker acknowledge no record now; None if it may."""

    @property
    def unproved_s(self) -> float:
        """The seconds for which this broker has not been certain of its place in the cluster; 0 while it is."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """Registered brokers, by ascending id."""

    @property
    def brokers_for_clients(self) -> Mapping[int, BrokerInfo]:
        """Brokers a client may ask, by ascending id; always includes this broker."""

    async def join(self, info: BrokerInfo) -> None:
        """Registers this broker and assumes its roles. Raises `CoordinationError`."""

    async def advertise(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Registers other addresses for the listeners, in this session and every later one of this process.

        Returns when this broker gives them to its clients. Raises `CoordinationError` if nothing has changed.
        """

    async def topic_created(self, topic: Topic) -> None:
        """Returns when every broker knows the topic, or after a while."""

    def storage_failed(self) -> None:
        """Called when the disk has failed: others have to lead what this broker led."""

    async def hand_over(self, within_s: float) -> None:
        """Returns when others lead what this broker led, or when the time is up."""

    async def ask(
        self, broker_id: int, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        """Sends another broker a native message and returns its answer. Raises `PeerError`."""

    async def clock_doubt(self, clock: Clock) -> str | None:
        """Compares the clock with the other brokers'; says why nothing may be deleted by time, None if it may."""

    @property
    def clocks_ahead_ms(self) -> Mapping[int, int]:
        """Milliseconds that the clock is ahead of the other brokers', by broker id, as last compared."""

    async def note_tree(self, last_id: int) -> int:
        """Notes the newest block of producer ids unless one up to `last_id` is noted; returns the last id noted."""

    async def confirm_claim(self, last_id: int) -> None:
        """Returns when the other brokers have noted this block of producer ids, or cannot be reached.

        Raises `OldCopyError` if one of them has seen a newer tree, `CoordinationError`.
        """

    async def leave(self) -> None:
        """Stops everything that `join` started."""
