"""A reader of one partition over the Kafka port, of committed records or of all of them, from the first offset on."""

from __future__ import annotations

import contextlib

from tests.simulation.clients import NONE, RETRIABLE, NoAnswerError
from tests.simulation.observations import Spot
from tests.simulation.transactions.fetched import take
from tests.simulation.transactions.port import KafkaPort
from tests.support.raw_batches import split_log
from tests.transactions.history.events import Seen


class PartitionReader:
    """One reader's way through one partition."""

    def __init__(self, port: KafkaPort, spot: Spot, *, is_committed: bool) -> None:
        self.spot = spot
        self.position = 0
        """The offset that is read next."""
        self._port = port
        self._is_committed = is_committed
        self._node: str | None = None

    def __repr__(self) -> str:
        return f"{self._port.client.name} of {self.spot}"

    async def run(self, found: list[Seen]) -> None:
        """Reads for ever, and writes down what it is given."""
        client = self._port.client
        while True:
            with contextlib.suppress(NoAnswerError):
                while await self.poll(found):
                    pass
            self._node = None
            await client.back_off()

    async def read_to(self, end: int, found: list[Seen]) -> None:
        """Reads up to this offset."""
        while self.position < end:
            with contextlib.suppress(NoAnswerError):
                if await self.poll(found):
                    continue
            self._node = None
            await self._port.client.back_off()

    async def poll(self, found: list[Seen]) -> bool:
        """Asks once. Returns whether the broker has answered without an error. Raises `NoAnswerError`."""
        port = self._port
        if self._node is None:
            self._node = await port.client.leader_of(self.spot)
        answer = await port.fetch(
            self._node, self.spot, self.position, is_committed=self._is_committed
        )
        code = answer.error_code
        if code != NONE:
            if code not in RETRIABLE:
                port.client.observations.find(f"{self} got {code}")
            return False
        if answer.last_stable_offset > answer.high_watermark:
            port.client.observations.find(
                f"{self}: it is stable above the high watermark: {answer}"
            )
        aborted = answer.aborted if self._is_committed else None
        taken = take(split_log(answer.records), self.position, aborted)
        if taken.noted:
            port.seen.count("H19 a fetch cuts a transaction that is aborted later")
        at = port.seen.now()
        found += [Seen(tuple(self.spot), offset, value, at) for offset, value in taken.records]
        if taken.next_offset != self.position:
            port.client.observations.note(str(self), self.position, taken.next_offset)
        self.position = taken.next_offset
        return True
