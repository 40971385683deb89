"""A producer that sends at an even rate, and records when each record was acknowledged."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from confluent_kafka import Producer

_VALUE = b"x" * 100
_FLUSH_TIMEOUT_S = 60.0


class SteadyProducer:
    """An idempotent librdkafka producer on one partition; it sends for the duration of the block."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        settings: Mapping[str, Any] | None = None,
        *,
        records_per_s: int = 200,
    ) -> None:
        self.acknowledged_at: list[float] = []
        """Times of time.time(), ascending."""
        self.failures: list[str] = []
        self._topic = topic
        self._interval_s = 1 / records_per_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._client = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "log_level": 2,
                **(settings or {}),
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def longest_silence_after(self, moment: float) -> tuple[float, float]:
        """When the last record before it and the first one after it were acknowledged."""
        silences = itertools.pairwise(list(self.acknowledged_at))
        return max(
            (pair for pair in silences if pair[1] > moment), key=lambda pair: pair[1] - pair[0]
        )

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        while not self._stopping.is_set():
            number += 1
            self._client.produce(self._topic, _VALUE, partition=0, on_delivery=self._on_delivery)
            while (left := began + number * self._interval_s - time.monotonic()) > 0:
                self._client.poll(left)
            self._client.poll(0)
        left_over = self._client.flush(_FLUSH_TIMEOUT_S)
        if left_over:
            self.failures.append(f"{left_over} records were never acknowledged")

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acknowledged_at.append(time.time())
        else:
            self.failures.append(str(error))
