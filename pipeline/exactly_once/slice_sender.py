"""Sends slices of rows with the resumable producer, batch by batch, and collects acknowledgements.

The producer's `buffer_bytes_max` limits what waits for acknowledgements.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from echoless.client.acknowledgements import Acknowledgements
from echoless.client.column_batch import ColumnBatches
from echoless.client.producer import Producer
from echoless.client.ready_batch import ReadyBatch
from echoless.client.settings import Settings
from echoless.client.state import ProducerState
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.batch_metrics import BrokerWaits
from echoless.pipeline.exactly_once.rows import RowSlice


class SliceSender:
    """One producer that continues from `state`. Use it in a `with` block."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Settings,
        state: ProducerState,
        waits: BrokerWaits,
    ) -> None:
        """`waits`: takes the time that acknowledgements, and space in the buffer, are waited for."""
        self._settings = settings
        self._waits = waits
        self._producer = Producer(bootstrap_servers, settings, state=state)
        self._open: dict[TopicPartition, ColumnBatches] = {}
        self._waiting: deque[tuple[TopicPartition, Future[Acknowledgements]]] = deque()
        self.doubtful: set[TopicPartition] = set()
        """Partitions in which another attempt stored, or may have stored, the same rows."""

    def __enter__(self) -> Self:
        self._producer.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.close()

    def send(self, rows: RowSlice) -> None:
        """Sends the rows; waits while the buffer is full. Raises `DeliveryError` if an earlier batch has failed."""
        target = rows.target
        batches = self._open.get(target)
        if batches is None:
            batches = self._open[target] = ColumnBatches(self._settings)
        for batch in batches.add(rows.columns):
            self._submit(target, batch)

    def finish(self) -> None:
        """Sends what is left, and waits until everything is acknowledged. Raises `DeliveryError`."""
        for target, batches in self._open.items():
            for batch in batches.finish():
                self._submit(target, batch)
        while self._waiting:
            self._take_oldest()

    def _submit(self, target: TopicPartition, batch: ReadyBatch) -> None:
        with self._waits:
            future = self._producer.send_batch(target.topic, target.partition, batch)
        self._waiting.append((target, future))
        while self._waiting and self._waiting[0][1].done():
            self._take_oldest()

    def _take_oldest(self) -> None:
        target, future = self._waiting.popleft()
        with self._waits:
            acknowledged = future.result()
        if any(batch.is_duplicate is not False for batch in acknowledged.batches):
            self.doubtful.add(target)
