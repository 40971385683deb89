"""A steady idempotent producer: numbered records, and where each was acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

_FLUSH_S: Final = 60.0


class Traffic:
    """Records in turn to every partition, from `start` to `stop`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float) -> None:
        self.stored: dict[tuple[int, int], int] = {}
        """The number of each acknowledged record, by partition and offset."""
        self.errors: list[str] = []
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "linger.ms": 5,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when every record is acknowledged."""
        self._over.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_S)
        assert not left, f"{left} records were not acknowledged"
        assert not self.errors, self.errors[:3]

    def _run(self) -> None:
        number = 0
        while not self._over.wait(1 / self._rate):
            self._producer.produce(
                self._topic,
                str(number),
                partition=number % self._partitions,
                on_delivery=self._delivered(number),
            )
            self._producer.poll(0)
            number += 1

    def _delivered(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.errors.append(error.str())
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            # Without one librdkafka takes it for stored because the batch after it was (`keyed_writer.py`).
            if offset is not None:
                self.stored[partition, offset] = number

        return delivered
