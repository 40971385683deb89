"""Sends slices of rows with the resumable producer, batch by batch, and collects acknowledgements.

The producer's `buffer_bytes_max` limits what waits for acknowledgements. It runs in the loop of the task's session, over its
connections.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self

from echoless.client.acknowledgements import Acknowledgements
from echoless.client.async_producer import AsyncProducer
from echoless.client.cluster import Cluster
from echoless.client.column_batch import ColumnBatches
from echoless.client.ready_batch import ReadyBatch
from echoless.client.settings import Settings
from echoless.client.state import ProducerState
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries
from echoless.pipeline.exactly_once.rows import RowSlice


class _Producer(AsyncProducer):
    """A producer over the connections of others."""

    def __init__(
        self, servers: str, settings: Settings, state: ProducerState, cluster: Cluster
    ) -> None:
        super().__init__(servers, settings, state=state)
        self._shared = cluster

    def _open_cluster(self) -> Cluster:
        return self._shared

    async def _close_cluster(self, cluster: Cluster) -> None:
        pass


class _Sent(NamedTuple):
    target: TopicPartition
    size: int
    outcome: Future[Acknowledgements]


_Submitted = tuple[TopicPartition, ReadyBatch, Future[Acknowledgements]]


class SliceSender:
    """One producer that continues from `state`. Use it in a `with` block."""

    def __init__(self, leaders: LeaderQueries, settings: Settings, state: ProducerState) -> None:
        """`leaders`: of the cluster, whose waits take the time that acknowledgements, and space in the buffer, are waited for."""
        self._session = leaders.session
        self._settings = settings
        self._waits = leaders.waits
        servers = leaders.session.key.bootstrap_servers
        self._producer = _Producer(servers, settings, state, leaders.cluster)
        self._open: dict[TopicPartition, ColumnBatches] = {}
        self._submitted: list[_Submitted] = []
        self._waiting: deque[_Sent] = deque()
        self._waiting_bytes = 0
        self.doubtful: set[TopicPartition] = set()
        """Partitions in which another attempt stored, or may have stored, the same rows."""

    def __enter__(self) -> Self:
        self._session.call(self._producer.start())
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._session.call(self._producer.close())

    def send(self, rows: RowSlice) -> None:
        """Sends the rows; waits while the buffer is full. Raises `DeliveryError` if an earlier batch has failed."""
        target = rows.target
        batches = self._open.get(target)
        if batches is None:
            batches = self._open[target] = ColumnBatches(self._settings)
        for batch in batches.add(rows.columns):
            self._submit(target, batch)
        self._hand_over()

    def finish(self) -> None:
        """Sends what is left, and waits until everything is acknowledged. Raises `DeliveryError`."""
        for target, batches in self._open.items():
            for batch in batches.finish():
                self._submit(target, batch)
        self._hand_over()
        while self._waiting:
            with self._waits:
                self._waiting[0].outcome.exception()
            self._take_done()

    def _submit(self, target: TopicPartition, batch: ReadyBatch) -> None:
        while self._waiting_bytes >= self._settings.buffer_bytes_max:
            self._hand_over()
            with self._waits:
                wait([one.outcome for one in self._waiting], return_when=FIRST_COMPLETED)
            self._take_done()
        outcome: Future[Acknowledgements] = Future()
        outcome.set_running_or_notify_cancel()
        self._waiting.append(_Sent(target, batch.size, outcome))
        self._waiting_bytes += batch.size
        self._submitted.append((target, batch, outcome))

    def _hand_over(self) -> None:
        """Hands the batches to the producer at once, so that they share requests."""
        if self._submitted:
            submitted, self._submitted = self._submitted, []
            self._session.loop.call_soon_threadsafe(self._send_all, submitted)
        if self._waiting and self._waiting[0].outcome.done():
            self._take_done()

    def _send_all(self, submitted: list[_Submitted]) -> None:
        """Runs in the loop's thread."""
        for target, batch, outcome in submitted:
            try:
                self._producer.submit(*target, batch, batch.size, outcome)
            except Exception as error:  # noqa: BLE001  only the outcome can tell the task
                if not outcome.done():
                    outcome.set_exception(error)

    def _take_done(self) -> None:
        """Takes the outcomes that are there. Raises `DeliveryError`."""
        left: deque[_Sent] = deque()
        for one in self._waiting:
            if not one.outcome.done():
                left.append(one)
                continue
            self._waiting_bytes -= one.size
            acknowledged = one.outcome.result()
            if any(batch.is_duplicate is not False for batch in acknowledged.batches):
                self.doubtful.add(one.target)
        self._waiting = left


def without_asking(settings: Settings) -> Settings:
    """Returns the settings of a producer for which the leaders have been asked just now."""
    return replace(settings, asks_on_resume=False, resumes_unnamed_topics=True)
