"""Real clients on the host: a producer that never stops by itself, and a reader of everything."""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from containers.waiting import wait_until

_ANSWER_TIMEOUT_S: Final = 60.0
_SOCKET_TIMEOUT_MS: Final = 10_000
_DELIVERY_TIMEOUT_MS: Final = 90_000
_UNACKNOWLEDGED_MAX: Final = 500
_PAUSE_S: Final = 0.002
_NO_GROUP: Final = "no-group-is-joined"


class Record(NamedTuple):
    """One record as it was read."""

    partition: int
    offset: int
    value: str


class Sender:
    """An idempotent producer in a thread: sends 0, 1, 2, ... until `finish`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.errors: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
                # A paused broker's connections stay open: this is how long the client waits before
                # it asks who else leads. Its default is a minute.
                "socket.timeout.ms": _SOCKET_TIMEOUT_MS,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, more: int) -> None:
        """Waits until this many more records are acknowledged."""
        wanted = self.acknowledged + more
        wait_until(lambda: self.acknowledged >= wanted, f"{more} more records acknowledged")

    def finish(self) -> list[str]:
        """Stops; returns the values that were sent, all of them acknowledged by now."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(_DELIVERY_TIMEOUT_MS / 1000)
        assert not self.errors, self.errors[:3]
        assert left == 0
        assert self.acknowledged == self.sent
        return [str(number) for number in range(self.sent)]

    def abandon(self) -> None:
        """Stops without waiting for acknowledgements; does nothing after `finish`."""
        self._stopping.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(_ANSWER_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self.sent - self.acknowledged - len(self.errors) < _UNACKNOWLEDGED_MAX:
                self._producer.produce(self._topic, str(self.sent), on_delivery=self._on_delivery)
                self.sent += 1
            self._producer.poll(_PAUSE_S)

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(str(error))


def read_all(bootstrap: str, topic: str) -> list[Record]:
    """Every record up to the high watermark, partition by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": _NO_GROUP})
    try:
        partitions = consumer.list_topics(topic, timeout=_ANSWER_TIMEOUT_S).topics[topic].partitions
        return [record for index in sorted(partitions) for record in _read(consumer, topic, index)]
    finally:
        consumer.close()


def _read(consumer: Any, topic: str, index: int) -> list[Record]:
    partition = TopicPartition(topic, index, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=_ANSWER_TIMEOUT_S)
    consumer.assign([partition])
    records: list[Record] = []
    while len(records) < end:
        message = consumer.poll(_ANSWER_TIMEOUT_S)
        assert message is not None, f"{topic}-{index}: {len(records)} of {end} records"
        assert message.error() is None, message.error()
        records.append(Record(index, message.offset(), message.value().decode()))
    return records


def assert_exactly_once(records: list[Record], sent: list[str]) -> None:
    """Every value is stored once, and within a partition in the order in which it was sent."""
    stored = sorted(int(record.value) for record in records)
    assert stored == sorted(map(int, sent)), _difference(stored, sent)
    for index in {record.partition for record in records}:
        values = [int(record.value) for record in records if record.partition == index]
        assert values == sorted(values), f"partition {index} is out of order"


def _difference(stored: list[int], sent: list[str]) -> str:
    lost = set(map(int, sent)) - set(stored)
    return f"sent {len(sent)}, stored {len(stored)}, lost {len(lost)}: {sorted(lost)[:10]}"
