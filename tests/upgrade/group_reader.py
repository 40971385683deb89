"""A consumer group of one member that reads a topic and commits, through a real client, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

_COMMIT_EVERY_S: Final = 0.3
_TIMEOUT_S: Final = 60.0


class GroupReader:
    """Reads for the duration of the block; at its end it reads and commits everything that is there."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.read: defaultdict[int, dict[int, tuple[bytes, bytes | None]]] = defaultdict(dict)
        """Key and value by partition and offset."""
        self.committed: dict[int, int] = {}
        """The newest offset whose commit was acknowledged, by partition."""
        self.went_back: list[str] = []
        """Assignments that began below what had been committed."""
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._client = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 20_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def stored(self) -> dict[int, int]:
        """The offsets that the group has now, by partition, as another client reads them."""
        places = [TopicPartition(self._topic, partition) for partition in self.read]
        return {one.partition: one.offset for one in self._client.committed(places, _TIMEOUT_S)}

    def close(self) -> None:
        """Leaves the group."""
        self._client.close()

    def _run(self) -> None:
        self._client.subscribe([self._topic], on_assign=self._on_assign)
        committed_at = time.monotonic()
        while not self._stopping.is_set():
            self._read(0.1)
            if time.monotonic() - committed_at > _COMMIT_EVERY_S:
                self._commit()
                committed_at = time.monotonic()
        deadline = time.monotonic() + _TIMEOUT_S
        while not self._is_at_end() and time.monotonic() < deadline:
            self._read(0.1)
        while not self._commit() and time.monotonic() < deadline:
            self._read(0.1)

    def _on_assign(self, client: Consumer, places: list[TopicPartition]) -> None:
        for one in client.committed(places, _TIMEOUT_S):
            known = self.committed.get(one.partition)
            if known is not None and one.offset < known:
                self.went_back.append(f"{one.partition}: {one.offset}, committed was {known}")

    def _read(self, timeout_s: float) -> None:
        for message in self._client.consume(500, timeout_s):
            if message.error() is None:
                record = message.key(), message.value()
                self.read[message.partition()][message.offset()] = record

    def _is_at_end(self) -> bool:
        try:
            return bool(self.read) and all(
                max(offsets) + 1
                >= self._client.get_watermark_offsets(TopicPartition(self._topic, partition), 10)[1]
                for partition, offsets in self.read.items()
            )
        except KafkaException:
            return False

    def _commit(self) -> bool:
        """Commits what was read; whether it was acknowledged."""
        wanted = {partition: max(offsets) + 1 for partition, offsets in self.read.items()}
        if not wanted:
            return False
        places = [TopicPartition(self._topic, partition, to) for partition, to in wanted.items()]
        try:
            done = self._client.commit(offsets=places, asynchronous=False)
        except KafkaException:
            return False  # a coordinator on its way: it is tried again
        if done is None or any(one.error for one in done):
            return False
        self.committed |= wanted
        return True
