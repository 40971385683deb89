"""The resumable idempotent producer with plain blocking calls.

    with Producer("127.0.0.1:9092") as producer:
        producer.send("orders", b"one", partition=0)
        producer.flush()

A thread runs the asyncio producer; records are collected into batches in the caller's thread and
handed over batch by batch. For one thread at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from echoless.client.acknowledgements import Acknowledgement, Acknowledgements
from echoless.client.async_producer import AsyncProducer, stopped
from echoless.client.batch import Records, key_that_decides, now_ms, partition_of, size_of
from echoless.client.blocking_outcome import BatchOutcome
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.open_batches import OpenBatch, OpenBatches
from echoless.client.ready_batch import ReadyBatch
from echoless.client.settings import DEFAULT_SETTINGS, Settings
from echoless.client.state import ProducerState
from echoless.client.transactions.checks import check_transactional
from echoless.client.transactions.group_metadata import GroupMetadata
from echoless.client.transactions.transactions import TransactionStage
from echoless.protocol.records import Headers

BlockingOutcome = Future[Acknowledgements]
_T = TypeVar("_T")
_NOT_RUNNING: Final = "the producer is not started, or closed"
_FORKED: Final = (
    "the producer is one of the process that this one was forked from: make one after the fork"
)
_TAKEN_AT_ONCE: Final = 100
"""Batches that the loop's thread takes over in one turn: answers want to be read too."""


class _HandedOver(NamedTuple):
    """A batch on its way to the loop's thread."""

    topic: str
    partition: int
    records: Records
    size: int
    outcome: BatchOutcome | BlockingOutcome


class BlockingDelivery:
    """The outcome of one record that was sent by `Producer.send`."""

    __slots__ = ("_batch", "_cut", "_index")

    def __init__(
        self,
        batch: OpenBatch[BatchOutcome],
        index: int,
        cut: Callable[[OpenBatch[BatchOutcome]], None],
    ) -> None:
        self._batch = batch
        self._index = index
        self._cut = cut

    def result(self, timeout_s: float | None = None) -> Acknowledgement:
        """Sends the batch, full or not, and waits for the acknowledgement; None: without a limit.

        Raises `DeliveryError`, and `TimeoutError` after `timeout_s` seconds.
        """
        self._cut(self._batch)
        return self._batch.outcome.result(timeout_s)[self._index]

    @property
    def is_done(self) -> bool:
        """Whether `result` would return at once."""
        return self._batch.outcome.done()


class Producer:
    """An idempotent producer with blocking calls, for one thread at a time (`docs/client.md`).

    `with` starts it, flushes unless the block raised, and closes it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Settings = DEFAULT_SETTINGS,
        *,
        state: ProducerState | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """`bootstrap_servers` is HOST:PORT[,HOST:PORT...]; `state` is that of an earlier run: see `resume`.

        With a `transactional_id` all records are part of transactions. Raises `ValueError` for settings that do not go
        with it.
        """
        if transactional_id is not None:
            check_transactional(transactional_id, settings, state)
        self.settings = settings
        """The settings it was made with."""
        self._bootstrap_servers = bootstrap_servers
        self._state = state
        self._transactional_id = transactional_id
        self._is_outside = transactional_id is not None
        """Whether records are refused, since no transaction is open, or its end is under way."""
        self._ending: Future[None] | None = None
        """The end of a transaction whose outcome no caller has taken yet."""
        self._is_commit = False
        """Whether that end is a commit."""
        self._core: AsyncProducer | None = None
        self._absence = _NOT_RUNNING
        """Why there is no core."""
        self._batches = OpenBatches[BatchOutcome](settings, self._new_outcome, self._submit_open)
        self._has_outcome = self._on_done  # one bound method for all outcomes
        self._cut = self._cut_and_hand_over
        self._partition_counts: dict[str, int] = {}
        self._lock = threading.RLock()
        """Lock of `_room`. `with` takes this one: an interrupt in a condition's own `__enter__` or `__exit__`, which are
        Python code, would leave it taken."""
        self._room = threading.Condition(self._lock)
        self._outstanding = self._outstanding_bytes = 0
        self._room_from = settings.buffer_bytes_max * 7 // 8
        """A sender that waits for room continues here: not with each batch, which is a change of threads."""
        self._waits_for_room = False
        self._first_error: BaseException | None = None
        self._handed_over: deque[_HandedOver] = deque()
        self._will_take = False
        """Whether the loop's thread will look at `_handed_over`."""

    @classmethod
    def resume(
        cls,
        state: ProducerState | str,
        bootstrap_servers: str,
        settings: Settings = DEFAULT_SETTINGS,
    ) -> Self:
        """A producer that continues from where `state` (or its JSON) was taken.

        The caller gives it, for each partition in the same order, every record that had no acknowledgement
        then; those that are stored are acknowledged and not stored again. Raises `StateError`.
        """
        if isinstance(state, str):
            state = ProducerState.from_json(state)
        return cls(bootstrap_servers, settings, state=state)

    def start(self) -> None:
        """Gets a producer id, or takes the one of the state. Raises `ProducerError`.

        With a transactional id it begins a session: earlier ones are fenced, and what they have open is aborted.
        Raises `TransactionError` if that fails.
        """
        self._check_thread()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="echoless-producer", daemon=True
        )
        self._thread.start()
        try:
            self._core = self._call(self._start_core())
        except BaseException:
            self._stop_loop()
            raise
        _with_threads.add(self)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> BlockingDelivery:
        """Adds a record to its partition's batch, which is sent when it is full, by `flush` or `result`.

        Without a partition the key decides, as in Kafka's own client. Without a timestamp (in ms since 1970)
        the record gets the current time, and a second run's bytes differ from those of the first. May wait
        for room in the buffer; if that is interrupted, the record was not taken.

        Raises `ValueError` without partition and key, and `ProducerError` if it is not running or the number
        of partitions is not known. With a transactional id also if no transaction is open.
        """
        if self._is_outside:
            raise ProducerError(self._stage.value)
        if partition is None:
            partition = self._partition_for(topic, key)
        timestamp = now_ms() if timestamp_ms is None else timestamp_ms
        batch, index = self._batches.add(topic, partition, (-1, timestamp, key, value, headers))
        return BlockingDelivery(batch, index, self._cut)

    def send_batch(self, topic: str, partition: int, records: Records) -> Future[Acknowledgements]:
        """Sends exactly these records as one batch; the future resolves to their acknowledgements.

        Everything sent to the partition earlier goes first. Records that are already encoded come as a
        `ReadyBatch` (`ColumnBatches`). The future cannot be cancelled: the batch is on its way. It raises
        `DeliveryError`.
        """
        if self._is_outside:
            raise ProducerError(self._stage.value)
        self._batches.cut_partition(topic, partition)
        outcome = BlockingOutcome()
        outcome.set_running_or_notify_cancel()
        given = records if isinstance(records, ReadyBatch) else list(records)
        self._submit(_HandedOver(topic, partition, given, size_of(given), outcome))
        return outcome

    def flush(self) -> None:
        """Sends everything and waits for it. Raises the first `DeliveryError` since the last flush."""
        self._check_thread()
        self._batches.cut_all()
        if self._handed_over:  # also by a `send` that was interrupted right after
            self._have_taken(self._running())
        with self._lock:
            self._room.wait_for(lambda: not self._outstanding)
        error = self._first_error  # no other thread changes it while nothing is outstanding
        if error is not None:
            self._first_error = None
            raise error

    def count_partitions(self, topic: str) -> int:
        """The number of partitions, which is asked for once; waits for the topic until the delivery timeout.

        Raises `ProducerError`.
        """
        core = self._running()
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = self._call(core.count_partitions(topic))
        return count

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A block whose records and offsets become visible together, at its end, or not at all.

        If the block raises, or the transaction cannot be committed, it is aborted, and the exception is passed on:
        after a `DeliveryError` or an `AbortableError` another transaction may be begun. Raises `TransactionError`.
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException as error:
            if self.is_in_transaction:
                self.abort_transaction()
            elif isinstance(error, DeliveryError):  # the session is over, which says more
                self._running().check_session()
            raise

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open: begun, and neither committed nor aborted, nor about to be."""
        return self._core is not None and self._ending is None and self._core.is_in_transaction

    def begin_transaction(self) -> None:
        """Begins a transaction. Raises `ProducerError` if one is open, `TransactionError` if there can be none."""
        core = self._running()
        if self._ending is not None:
            self._take_end(is_commit=self._is_commit)
        self._call(core.begin_transaction())
        self._is_outside = False

    def send_offsets(
        self, offsets: Mapping[tuple[str, int], int], group: GroupMetadata, metadata: str = ""
    ) -> None:
        """Commits offsets of a consumer group, by topic and partition, with the transaction.

        Each is that of the next record to read; `metadata` is stored beside it. Raises `AbortableError`, also if the
        group refuses the member, and `FencedError`.
        """
        self._call(self._running().send_offsets(offsets, group, metadata))

    def commit_transaction(self) -> None:
        """Sends everything, waits for it, and commits. If that is interrupted, calling it again returns the outcome.

        Raises `AbortableError` if it is impossible: abort. `UnansweredError`: commit again, nothing else. Other
        `TransactionError`s are final.
        """
        core = self._running()
        if self._ending is None:
            with contextlib.suppress(ProducerError):  # the transaction knows of it, too
                self.flush()
            self._begin_end(core.commit_transaction(), is_commit=True)
        self._take_end(is_commit=True)

    def abort_transaction(self) -> None:
        """Aborts; what is not acknowledged fails. Raises `TransactionError`; after `UnansweredError` abort again.

        Raises `ProducerError` after a commit that was interrupted: its outcome is not known.
        """
        core = self._running()
        if self._ending is None:
            for batch in self._batches.drop():
                batch.outcome.drop(stopped("its transaction is aborted"))
            self._begin_end(self._abort(core), is_commit=False)
        self._take_end(is_commit=False)
        self._first_error = None

    def state(self) -> ProducerState:
        """The numbers from which a later run continues; records in open batches count as not given.

        Save it together with the position of the first record that is not acknowledged: after a
        `flush`, that is the position of the next record. Raises `ProducerError` with `lease_servers`.
        """
        return self._call(self._state_of(self._running()))

    def close(self) -> None:
        """Stops at once: records not yet acknowledged fail. Call `flush` first to send them."""
        core, self._core = self._core, None
        if core is not None:
            self._call(self._close(core))
            self._stop_loop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Flushes, unless the block raised; aborts a transaction that is open."""
        try:
            if exc_type is None and self._transactional_id is None:
                self.flush()
            elif exc_type is None and self.is_in_transaction:
                self.abort_transaction()
        finally:
            self.close()

    async def _start_core(self) -> AsyncProducer:
        core = AsyncProducer(
            self._bootstrap_servers,
            self.settings,
            state=self._state,
            transactional_id=self._transactional_id,
        )
        await core.start()
        return core

    def _running(self) -> AsyncProducer:
        if self._core is None:
            raise ProducerError(self._absence)
        return self._core

    def _lose_thread(self) -> None:
        self._core, self._absence = None, _FORKED

    def _check_thread(self) -> None:
        """Raises `ProducerError` where nobody would wake a caller that waits."""
        if self._absence is _FORKED:
            raise ProducerError(_FORKED)

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine in the loop, and waits for its result. If that is interrupted, it is cancelled."""
        running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _partition_for(self, topic: str, key: bytes | None) -> int:
        return partition_of(key_that_decides(key), self.count_partitions(topic))

    def _submit_open(self, batch: OpenBatch[BatchOutcome]) -> None:
        batch.outcome.size = batch.size
        self._submit(
            _HandedOver(batch.topic, batch.partition, batch.records, batch.size, batch.outcome),
            batch,
        )

    def _cut_and_hand_over(self, batch: OpenBatch[BatchOutcome]) -> None:
        if not batch.outcome.done():
            self._check_thread()
        self._batches.cut(batch)
        if self._handed_over and self._core is not None:  # by a `send` that was interrupted after
            self._have_taken(self._core)

    def _new_outcome(self) -> BatchOutcome:
        return BatchOutcome(self._lock, self._room, self._has_outcome)

    def _submit(self, batch: _HandedOver, opened: OpenBatch[BatchOutcome] | None = None) -> None:
        """Hands the batch over, and marks `opened` as cut; waits for room in the buffer.

        An interrupt is raised where a call begins or ends. So nothing is called between the first of the
        changes and the last, `append`: either the batch is counted, cut and handed over, or none of it.
        """
        core = self._running()
        with self._lock:
            if self._outstanding_bytes >= self.settings.buffer_bytes_max:
                self._wait_for_room(core)
            self._outstanding += 1
            self._outstanding_bytes += batch.size
            if opened is not None:
                opened.is_cut = True
            self._handed_over.append(batch)
        self._have_taken(core)

    def _have_taken(self, core: AsyncProducer) -> None:
        """Has the loop's thread take over the batches, unless it is about to."""
        if self._will_take:
            return
        self._will_take = True
        try:
            self._loop.call_soon_threadsafe(self._take_over, core)
        except BaseException:
            self._will_take = False
            raise

    def _wait_for_room(self, core: AsyncProducer) -> None:
        if self._handed_over:  # also by a `send` that was interrupted right after
            self._have_taken(core)
        self._waits_for_room = True
        try:
            self._room.wait_for(lambda: self._outstanding_bytes <= self._room_from)
        finally:
            self._waits_for_room = False

    def _take_over(self, core: AsyncProducer) -> None:
        """Runs in the loop's thread. A batch is seen by this run or by one that is still to come."""
        self._will_take = False
        for _ in range(_TAKEN_AT_ONCE):
            if not self._handed_over:
                return
            self._submit_to(core, self._handed_over.popleft())
        self._will_take = True
        self._loop.call_soon(self._take_over, core)

    def _submit_to(self, core: AsyncProducer, batch: _HandedOver) -> None:
        outcome = batch.outcome
        if isinstance(outcome, Future):
            outcome.add_done_callback(lambda done: self._note_end(done.exception(), batch.size))
        try:
            core.submit(*batch)
        except Exception as error:  # noqa: BLE001  only the outcome can tell the caller
            if not outcome.done():
                outcome.set_exception(error)

    def _on_done(self, outcome: BatchOutcome) -> None:
        self._note_end(outcome.exception(), outcome.size, outcome)

    def _note_end(
        self, error: BaseException | None, size: int, outcome: BatchOutcome | None = None
    ) -> None:
        """Runs in the loop's thread."""
        with self._lock:
            self._outstanding -= 1
            self._outstanding_bytes -= size
            self._first_error = self._first_error or error
            has_room = self._waits_for_room and self._outstanding_bytes <= self._room_from
            is_awaited = outcome is not None and outcome.is_awaited
            if is_awaited or has_room or not self._outstanding:
                self._room.notify_all()

    async def _state_of(self, core: AsyncProducer) -> ProducerState:
        """Takes the state between two steps of the senders, which only the loop's thread can ensure."""
        self._take_all(core)
        return core.state()

    async def _abort(self, core: AsyncProducer) -> None:
        self._take_all(core)
        await core.abort_transaction()

    @property
    def _stage(self) -> TransactionStage:
        """The stage in which records are refused."""
        if self._ending is None:
            return TransactionStage.NONE
        return TransactionStage.COMMITTING if self._is_commit else TransactionStage.ABORTING

    def _begin_end(self, end: Coroutine[Any, Any, None], *, is_commit: bool) -> None:
        self._is_outside, self._is_commit = True, is_commit
        self._ending = asyncio.run_coroutine_threadsafe(end, self._loop)

    def _take_end(self, *, is_commit: bool) -> None:
        """Waits for the end of a transaction. If that is interrupted, it is taken by a later call of the same kind."""
        ending = self._ending
        assert ending is not None
        if is_commit is not self._is_commit:
            raise ProducerError(self._stage.value)
        try:
            ending.result()
        except BaseException as error:
            if ending.done() and ending.exception() is error:
                self._ending = None
                self._is_outside = not self.is_in_transaction
            raise
        self._ending = None

    async def _close(self, core: AsyncProducer) -> None:
        self._take_all(core)
        await core.close()

    def _take_all(self, core: AsyncProducer) -> None:
        while self._handed_over:
            self._submit_to(core, self._handed_over.popleft())


_with_threads: Final[weakref.WeakSet[Producer]] = weakref.WeakSet()
"""Producers that were started."""


def _lose_threads() -> None:
    """Notes in a process that was forked that the loops' threads have stayed in the other one: nothing is sent from here."""
    for producer in _with_threads:
        producer._lose_thread()  # noqa: SLF001


os.register_at_fork(after_in_child=_lose_threads)
