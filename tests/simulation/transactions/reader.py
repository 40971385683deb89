"""A reader of one partition over the Kafka port, of committed records or of all of them, from the first offset on."""

from __future__ import annotations

import contextlib
import datetime
from typing import Any, Final

from tests.simulation.clients import NONE, RETRIABLE, NoAnswerError
from tests.simulation.observations import Spot
from tests.simulation.transactions.fetched import take
from tests.simulation.transactions.port import KafkaPort
from tests.support.raw_batches import split_log
from tests.support.raw_client import nested
from tests.transactions.history.events import Seen

_VERSION: Final = 11
_WAIT: Final = datetime.timedelta(milliseconds=500)
_BYTES_MAX: Final = 2000
"""So few that many responses end in the middle of a transaction."""


class PartitionReader:
    """One reader's way through one partition."""

    def __init__(self, port: KafkaPort, spot: Spot, *, is_committed: bool) -> None:
        self.spot = spot
        self.position = 0
        """The offset that is read next."""
        self._port = port
        self._is_committed = is_committed
        self._node: str | None = None
        self._stable = -1
        """The last stable offset that this leader gave last."""

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
            self._stable = -1
        answer = await port.ask(self._node, "fetch", _VERSION, **self._fields())
        (topic,) = answer.responses
        (row,) = topic.partitions
        code = int(row.error_code)
        if code != NONE:
            if code not in RETRIABLE:
                port.client.observations.find(f"{self} got {code}")
            return False
        self._judge_ends(row)
        taken = take(
            split_log(row.records or b""),
            self.position,
            row.aborted_transactions
            and [(one.producer_id, one.first_offset) for one in row.aborted_transactions],
        )
        if taken.noted:
            port.seen.count("H19 a fetch cuts a transaction that is aborted later")
        at = port.seen.now()
        found += [Seen(tuple(self.spot), offset, value, at) for offset, value in taken.records]
        if taken.next_offset != self.position:
            port.client.observations.note(str(self), self.position, taken.next_offset)
        self.position = taken.next_offset
        return True

    def _fields(self) -> dict[str, Any]:
        row = nested("fetch", _VERSION, "FetchPartition")(
            partition=self.spot.partition,
            fetch_offset=self.position,
            partition_max_bytes=_BYTES_MAX,
        )
        topic = nested("fetch", _VERSION, "FetchTopic")(topic=self.spot.topic, partitions=(row,))
        return {
            "max_wait": _WAIT,
            "min_bytes": 1,
            "isolation_level": int(self._is_committed),
            "topics": (topic,),
            "forgotten_topics_data": (),
        }

    def _judge_ends(self, row: Any) -> None:
        """The last stable offset is at most the high watermark, and does not move back while one broker leads."""
        observations = self._port.client.observations
        stable, end = row.last_stable_offset, row.high_watermark
        if stable > end:
            observations.find(f"{self}: the last stable offset {stable} is above {end}")
        self._stable = max(self._stable, stable)
