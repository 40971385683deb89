"""The way of markers to the leaders of partitions: on this broker without a socket, to others by `write_markers`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from echoless.broker.cluster.membership import ClusterMembership
from echoless.protocol.native.transactions import (
    MarkerCodes,
    TransactionMarker,
    WriteMarkers,
    read_write_markers_answer,
)

ANSWERED_S: Final = 10.0
"""Time that another broker has for its answer; it may wait for replicas. Then its connection is closed, and markers are sent again."""

WriteHere = Callable[[Sequence[TransactionMarker]], Awaitable[MarkerCodes]]


class BrokerMarkerDoor:
    """The door of one broker; the `MarkerDoor` of `marker_queue.py`."""

    def __init__(self, broker_id: int, cluster: ClusterMembership, write_here: WriteHere) -> None:
        """`write_here` appends to partitions that this broker leads."""
        self._broker_id = broker_id
        self._cluster = cluster
        self._write_here = write_here

    async def write(self, broker_id: int, markers: Sequence[TransactionMarker]) -> MarkerCodes:
        """Has a broker append the markers. Raises `PeerError`, `KafkaError`, `DecodeError`."""
        if broker_id == self._broker_id:
            return await self._write_here(markers)
        message = WriteMarkers(self._broker_id, markers).to_message()
        answer = await self._cluster.ask(broker_id, message, timeout_s=ANSWERED_S)
        return read_write_markers_answer(answer, markers)
