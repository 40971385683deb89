"""A consumer of one partition: polls from the beginning, and remembers every batch that it gets."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from tests.simulation.clients import (
    NONE,
    OUT_OF_RANGE,
    REQUEST_TIMEOUT_S,
    RETRIABLE,
    Client,
    NoAnswerError,
    error_code,
)
from tests.simulation.connection import ClientConnection
from tests.simulation.observations import Poll, Seek, Spot
from tests.support.raw_batches import split_log

WAIT_MS: Final = 1000
BYTES_MAX: Final = 4096


class Subscription:
    """One consumer's way through one partition."""

    def __init__(self, client: Client, spot: Spot) -> None:
        self.spot = spot
        self.position = 0
        """The offset that is read next: everything below was read, or was deleted before."""
        self._client = client
        self._watched: ClientConnection | None = None
        self._high_watermark = -1
        """The last one seen over this connection."""

    async def run(self) -> None:
        """For ever."""
        client = self._client
        while True:
            node = await client.leader_of(self.spot)
            with contextlib.suppress(NoAnswerError):
                await self._poll(client.connection(node))
            await client.back_off()

    async def _poll(self, connection: ClientConnection) -> None:
        """Polls as long as it succeeds."""
        while True:
            answer = await self._client.ask(connection, self._fetch(), REQUEST_TIMEOUT_S)
            code = error_code(answer)
            if code == OUT_OF_RANGE:
                self._seek(connection)
                return
            if code != NONE:
                if code not in RETRIABLE:
                    self._client.observations.find(f"{self._client.name} got {answer['error']}")
                return
            self._look_at_high_watermark(connection, answer["high_watermark"])
            self._take(answer["batches"], answer["next_offset"])

    def _fetch(self) -> dict[str, Any]:
        return {
            "type": "fetch",
            "topic": self.spot.topic,
            "partition": self.spot.partition,
            "offset": self.position,
            "max_wait_ms": WAIT_MS,
            "bytes_max": BYTES_MAX,
            "raw": True,
        }

    def _look_at_high_watermark(self, connection: ClientConnection, high_watermark: int) -> None:
        """On one run of one broker it never moves back."""
        if connection is self._watched and high_watermark < self._high_watermark:
            self._client.observations.find(
                f"the high watermark of {self.spot} went back at {connection.service.node}: "
                f"{self._high_watermark} to {high_watermark}"
            )
        self._watched, self._high_watermark = connection, high_watermark

    def _take(self, batches: bytes, next_offset: int) -> None:
        observations, name = self._client.observations, self._client.name
        for batch in split_log(batches):
            observations.polls.append(
                Poll(observations.clock(), name, self.spot, batch.base_offset, batch.data)
            )
        if batches:
            observations.note(name, self.spot, "polled", self.position, next_offset)
        self.position = next_offset

    def _seek(self, connection: ClientConnection) -> None:
        """Records were deleted before they were read; never may the log end before them."""
        broker = connection.service.broker
        partition = broker.partitions.get((self.spot.topic, self.spot.partition))
        if partition is None:
            return
        start, end = partition.log.log_start_offset, partition.log.log_end_offset
        if self.position < start:
            seek = Seek(self._client.name, self.spot, self.position, start)
            self._client.observations.seeks.append(seek)
            self.position = start
        elif partition.is_leader and self.position > end:
            self._client.observations.find(
                f"lost: {self._client.name} has read {self.spot} up to {self.position}, "
                f"{connection.service.node} leads it and ends at {end}"
            )
