"""A producer of numbered records that outlives every stop, and the judge of the result."""

from __future__ import annotations

import threading
import time
from typing import Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

RECORDS_PER_S: Final = 500
_DELIVERY_MS: Final = 600_000
_PATIENCE_S: Final = 120.0


class Writer:
    """An idempotent librdkafka producer in a thread; it writes for the duration of the block."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged = 0
        self._failures: list[str] = []
        self._sent = 0
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._client = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": _DELIVERY_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for(self, records: int) -> None:
        """Waits until this many more are acknowledged."""
        goal, deadline = self.acknowledged + records, time.monotonic() + _PATIENCE_S
        while self.acknowledged < goal:
            assert time.monotonic() < deadline, "no record is acknowledged any more"
            time.sleep(0.01)

    def judge(self, bootstrap: str) -> list[str]:
        """The faults of the stored records: each once, each partition in order."""
        wrong = list(self._failures)
        if self.acknowledged != self._sent:
            wrong.append(f"{self._sent} sent, {self.acknowledged} acknowledged")
        for partition in range(self._partitions):
            stored = _read(bootstrap, self._topic, partition)
            sent = list(range(partition, self._sent, self._partitions))
            if stored != sent:
                missing, extra = sorted(set(sent) - set(stored)), len(stored) - len(set(stored))
                wrong.append(
                    f"partition {partition}: {len(missing)} missing ({missing[:5]}), {extra} stored "
                    f"twice, {'in' if stored == sorted(stored) else 'out of'} order"
                )
        return wrong

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopping.is_set():
            value, partition = str(self._sent), self._sent % self._partitions
            try:
                self._client.produce(
                    self._topic, value, partition=partition, on_delivery=self._on_delivery
                )
            except BufferError:
                self._client.poll(0.1)
                continue
            self._sent += 1
            due = began + self._sent / RECORDS_PER_S
            self._client.poll(max(due - time.monotonic(), 0))
        self._client.flush(_PATIENCE_S)

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._failures.append(str(error))


def _read(bootstrap: str, topic: str, partition: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "log_level": 2})
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place, timeout=_PATIENCE_S)
    numbers: list[int] = []
    position, deadline = 0, time.monotonic() + _PATIENCE_S
    while position < end and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=1.0):
            assert message.error() is None, message.error()
            position = message.offset() + 1
            numbers.append(int(message.value()))
    consumer.close()
    return numbers
