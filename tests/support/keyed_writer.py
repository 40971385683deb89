"""A producer of keyed records, and the table that their acknowledgements promise."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Mapping
from typing import Any, Self

from confluent_kafka import Producer

KEYS = 60
UNSURE = b"unsure"
"""The key of records whose fate is open."""
_BATCH_BYTES = 8000
"""So that a batch fits into a small segment, even after a pause."""
_TIMEOUT_S = 120.0


class KeyedWriter:
    """An idempotent librdkafka producer on partition 0; it writes random keys for the duration of the block.

    A tenth of the records are tombstones. It never gives a record up, so that what was sent is acknowledged at
    the end of the block, or named in `failures`.
    """

    def __init__(self, bootstrap: str, topic: str, *, seed: int, records_per_s: int) -> None:
        self.acknowledged: dict[int, tuple[bytes, bytes | None]] = {}
        """Key and value by offset."""
        self.unsure: dict[int, tuple[bytes, bytes | None]] = {}
        """The same of what the leader alone has acknowledged."""
        self.failures: list[str] = []
        self._placed: dict[int, int] = {}
        """The offset of each record that was acknowledged with one, by its number."""
        self._unplaced: dict[int, tuple[bytes, bytes | None]] = {}
        """Those that were acknowledged without."""
        self.sent = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._random = random.Random(seed)
        self._interval_s = 1 / records_per_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        while self._unplaced:
            self._place(min(self._unplaced))

    def _place(self, first: int) -> None:
        """Finds the offsets of records that were acknowledged without: between those before and after them."""
        end = next(number for number in itertools.count(first) if number not in self._unplaced)
        between = range(self._placed[first - 1] + 1, self._placed[end])
        offsets = [offset for offset in between if offset not in self.unsure]
        if len(offsets) != end - first:
            self.failures.append(f"records {first} to {end - 1} are not the ones at {offsets}")
        for number, offset in zip(range(first, end), offsets, strict=False):
            self.acknowledged[offset] = self._unplaced[number]
        for number in range(first, end):
            del self._unplaced[number]

    def table(self) -> dict[bytes, tuple[int, bytes | None]]:
        """Offset and value of each key's newest record; None for a tombstone."""
        return {key: (offset, value) for offset, (key, value) in sorted(self.acknowledged.items())}

    def write_with_short_lives(self, producers: int, batches: int) -> None:
        """Has producers of their own write so many batches each, of one record, and end."""
        for _ in range(producers):
            client = self._client()
            for _ in range(batches):
                self._write(client)
                self._finish(client)

    def unsure_client(self) -> Producer:
        """A producer whose records count when the leader has them; connected, and one record written."""
        client = self._client({"enable.idempotence": False, "acks": 1})
        self.write_unsure(client)
        return client

    def write_unsure(self, client: Producer, count: int = 1) -> None:
        """Writes so many batches, each of one record, one after the other."""

        def on_delivery(error: Any, message: Any) -> None:
            assert error is None
            self.unsure[message.offset()] = (UNSURE, b"x")

        for _ in range(count):
            client.produce(self._topic, b"x", UNSURE, partition=0, on_delivery=on_delivery)
            self._finish(client)

    def _run(self) -> None:
        client = self._client()
        while not self._stopping.wait(self._interval_s):
            self._write(client)
            client.poll(0)
        self._finish(client)

    def _client(self, settings: Mapping[str, Any] | None = None) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "batch.size": _BATCH_BYTES,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
                **(settings or {}),
            }
        )

    def _write(self, client: Producer) -> None:
        self.sent = number = self.sent + 1
        key = b"key-%02d" % self._random.randrange(KEYS)
        is_tombstone = self._random.random() < 0.1
        value = None if is_tombstone else b"%08d" % self.sent * 12

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
            elif message.offset() is None:
                # It was answered with a retriable error, and the batch after it was stored: librdkafka takes it for
                # stored, too (IMPLICITACK). So it is when too few replicas were in sync, or a session was lost.
                self._unplaced[number] = (key, value)
            elif self._placed.setdefault(number, message.offset()) != message.offset():
                self.failures.append(f"record {number} was acknowledged twice")
            elif self.acknowledged.setdefault(message.offset(), (key, value)) != (key, value):
                self.failures.append(f"two records at {message.offset()}")

        client.produce(self._topic, value, key, partition=0, on_delivery=on_delivery)

    def _finish(self, client: Producer) -> None:
        left = client.flush(_TIMEOUT_S)
        if left:
            self.failures.append(f"{left} records were never acknowledged")
