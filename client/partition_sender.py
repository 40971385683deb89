"""Sends one partition's batches: executes the steps of its `Sequencer`.

Most steps need not wait: they are done at once, when a batch is added or answered (`_continue`). A task
does those that do, such as looking for a leader, and sleeps until the next deadline. While it is within a
step, answers collect in `_events`. So the sequencer is used by one of them at a time, and nothing is awaited
between asking it for a step and reporting what was done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from echoless.client.acknowledgements import AcknowledgedBatch
from echoless.client.answers import PartitionProduceResponse, answer_of
from echoless.client.batch import Delivery, Piece, Records
from echoless.client.cluster import NoLeaderError
from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.errors import DeliveryError, delivery_error
from echoless.client.leased_partition import LeasedPartition
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.client.produce_request import PartitionBatch
from echoless.client.ready_batch import ReadyBatch
from echoless.client.sequenced_batch import BatchAcknowledged, Identity, SequencedBatch
from echoless.client.sequencer import Sequencer
from echoless.client.sequencer_actions import (
    Action,
    Ask,
    BackOff,
    Divided,
    Failed,
    LeaderEntry,
    NewId,
    Renumbered,
    Send,
    Start,
    Step,
)
from echoless.client.state import PartitionState
from echoless.client.surroundings import Surroundings
from echoless.client.topic_partition import TopicPartition
from echoless.protocol.errors import ErrorCode
from echoless.protocol.produce_response import ProducedRow

_JITTER: Final = 0.2
_COMMIT_SHARE: Final = 0.9
"""The part of the request timeout for the commit; the answer still arrives in time."""
_API: Final = "describe_producers"


class PartitionSender:
    """One partition of one producer, from its first batch to `close`."""

    def __init__(
        self, topic: str, partition: int, start: Start, surroundings: Surroundings
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._around = surroundings
        self._settings = surroundings.settings
        self._sequencer = Sequencer(
            start,
            in_flight_max=self._settings.in_flight_max,
            after_failure=self._settings.after_failure,
        )
        self._leased = (
            LeasedPartition(surroundings.leases, TopicPartition(topic, partition), self._sequencer)
            if surroundings.leases is not None
            else None
        )
        self._commit_timeout_ms = round(self._settings.request_timeout_s * _COMMIT_SHARE * 1000)
        self._loop = asyncio.get_running_loop()
        self._events: deque[tuple[SequencedBatch, ProducedRow | Exception]] = deque()
        self._wake = asyncio.Event()
        self._is_resting = self._leased is None
        """Whether the task has nothing to do, so that steps can be done without it."""
        self._step: Step | None = None
        """A step left for the task."""
        self._is_stopping = self._is_closed = False
        self._landed = asyncio.Event()
        """Set when a batch has left flight, answered, lost or unsent."""
        self._failures_in_a_row = 0
        self._not_before = 0.0
        self._must_refresh = False
        self._last_reason = ""
        """Why the last attempt did not succeed, for the error message."""
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._on_end)

    def add(self, records: Records, delivery: Delivery) -> None:
        """Adds records. On a stopped partition the delivery fails at once.

        Raises the encoder's exception if a value is not bytes.
        """
        stopped = self._sequencer.failure
        if stopped is not None:
            self._around.on_failed(delivery, self._error(stopped))
            return
        sequencer = self._sequencer
        piece = Piece(delivery, records, self._loop.time() + self._settings.delivery_timeout_s)
        if not isinstance(records, ReadyBatch):
            # A record that cannot be encoded fails here, before it has numbers.
            self._encode(piece, sequencer.identity, sequencer.next_sequence)
        sequencer.add(len(records), piece)
        self._continue()

    def wake(self) -> None:
        """Wakes the task: something that it may be waiting for has happened elsewhere."""
        self._wake.set()

    def hold(self) -> None:
        """Sends no batch that was never sent, until `release`."""
        self._sequencer.is_held = True

    def release(self) -> None:
        self._sequencer.is_held = False
        self._continue()

    def begin_anew(self, identity: Identity) -> None:
        """Numbers what comes next from 0 under another identity. Not while something is outstanding."""
        self._perform(self._sequencer.begin_anew(identity))

    async def stop(self) -> None:
        """Sends nothing more, and returns when nothing is in flight."""
        self._is_stopping = True
        while self._sequencer.in_flight and not self._task.done():
            self._landed.clear()
            await self._landed.wait()

    def state(self) -> PartitionState:
        sequencer = self._sequencer
        return PartitionState(
            topic=self.topic,
            partition=self.partition,
            producer_id=sequencer.identity.producer_id,
            producer_epoch=sequencer.identity.producer_epoch,
            next_sequence=sequencer.first_unacknowledged,
            unacknowledged=sequencer.unacknowledged_count,
        )

    async def close(self) -> None:
        """Stops at once; deliveries not yet acknowledged never get an outcome from here."""
        self._stop()
        await asyncio.gather(self._task, return_exceptions=True)

    def _stop(self) -> None:
        self._is_closed, self._is_resting = True, False
        self._task.cancel()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._landed.set()
        self._is_resting = False
        if not task.cancelled():
            error = task.exception()
            assert error is not None, "a sender ends only when it is closed"
            self._around.on_crash(error)
        elif not self._is_closed:  # the end of `asyncio.run` cancels every task
            self._around.on_crash(asyncio.CancelledError("its task was cancelled"))

    async def _run(self) -> None:
        if self._leased is not None:
            await self._begin_leases(self._leased)
        while True:
            self._is_resting = False
            self._wake.clear()
            # One reading of the clock, so that a step not due yet is slept for.
            now = self._loop.time()
            step, self._step = self._step, None
            if step is None:
                step = self._advance(now)
            if step is not None:
                await self._do(step)
            else:
                await self._rest(now)

    def _continue(self) -> None:
        """Does what can be done without waiting; leaves the rest to the task."""
        if not self._is_resting or self._wake.is_set():
            self._wake.set()
            return
        try:
            self._step = self._advance(self._loop.time())
        except Exception as error:  # noqa: BLE001  a bug: it must not end the connection
            self._stop()
            self._around.on_crash(error)
            return
        sequencer = self._sequencer
        if self._step is not None or (not sequencer.in_flight and sequencer.oldest is not None):
            self._wake.set()  # which sleeps until no batch is due, if there is nothing else to do

    def _advance(self, now: float) -> Step | None:
        """Takes the events, and does the steps that need not wait; returns the first that does."""
        while True:
            self._take_events()
            if self._leased is not None:
                self._perform(self._leased.update())
            self._maybe_give_up(now)
            step = self._next_step(now)
            if step is None or not self._do_at_once(step):
                return step

    async def _begin_leases(self, leased: LeasedPartition) -> None:
        """Requests leases after metadata: a missing topic gets no leases, but metadata may create it."""
        try:
            await self._around.cluster.partition_count(self.topic)
        except NoLeaderError as error:
            self._last_reason = str(error)
        leased.begin()

    def _maybe_give_up(self, now: float) -> None:
        sequencer = self._sequencer
        if sequencer.in_flight:
            return
        oldest = sequencer.oldest
        if oldest is not None and oldest.payload.deadline <= now:
            self._perform(sequencer.on_overdue())

    def _next_step(self, now: float) -> Step | None:
        if now < self._not_before or self._is_stopping:
            return None
        return self._sequencer.next_step()

    async def _rest(self, now: float) -> None:
        """Sleeps until an event, the end of the back-off, or the oldest batch's deadline."""
        oldest = self._sequencer.oldest
        until = None
        if oldest is not None and not self._sequencer.in_flight:
            until = oldest.payload.deadline
            if now < self._not_before:
                until = min(until, self._not_before)
        self._is_resting = True
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            return
        finally:
            self._is_resting = False

    # --- steps ---------------------------------------------------------------------------------

    async def _do(self, step: Step) -> None:
        match step:
            case Send(batch):
                await self._send(batch)
            case Ask():
                await self._ask(step.identity)
            case NewId():
                await self._get_new_id()

    def _do_at_once(self, step: Step) -> bool:
        """Sends a batch to a leader that is known and connected; returns whether the step was that."""
        if not isinstance(step, Send) or self._must_refresh:
            return False
        connection = self._around.cluster.known_leader(self.topic, self.partition)
        if connection is None:
            return False
        try:
            self._produce(connection, step.batch)
        except ConnectionFailedError as error:
            self._on_unsent(step.batch, error)
        return True

    async def _send(self, batch: SequencedBatch) -> None:
        cluster = self._around.cluster
        try:
            connection = cluster.known_leader(self.topic, self.partition)
            if connection is None or self._must_refresh:
                await self._find_leader()
                connection = await cluster.leader(self.topic, self.partition)
            self._produce(connection, batch)
        except (NoLeaderError, ConnectionFailedError) as error:
            self._on_unsent(batch, error)

    def _produce(self, connection: PipelinedConnection, batch: SequencedBatch) -> None:
        # A batch that is resent goes alone: it may be one for which others would have to wait.
        connection.produce(
            PartitionBatch(self.topic, self.partition, self._data(batch)),
            _InFlight(self, batch),
            timeout_ms=self._commit_timeout_ms,
            bytes_max=self._settings.request_bytes_max if batch.attempts == 1 else 0,
            terms=self._around.terms,
        )

    def _on_unsent(
        self, batch: SequencedBatch, error: NoLeaderError | ConnectionFailedError
    ) -> None:
        self._landed.set()
        self._last_reason = str(error)
        code = getattr(error, "final_code", ErrorCode.NONE)
        if code:
            self._perform(
                self._sequencer.on_answer(batch, PartitionProduceResponse(code, message=str(error)))
            )
        else:
            self._perform(self._sequencer.on_unsent(batch))

    async def _find_leader(self) -> None:
        if self._must_refresh:
            self._must_refresh = False
            await self._around.cluster.refresh(self.topic)

    def note(self, batch: SequencedBatch, outcome: ProducedRow | Exception) -> None:
        """Takes the answer to a batch in flight, or why there is none."""
        self._events.append((batch, outcome))
        self._continue()

    async def _ask(self, identity: Identity) -> None:
        topic = {"name": self.topic, "partition_indexes": [self.partition]}
        try:
            await self._find_leader()
            connection = await self._around.cluster.leader(self.topic, self.partition)
            if not connection.serves(_API):
                text = f"{connection.address} does not serve {_API}"
                self._perform(
                    self._sequencer.on_unanswerable(
                        PartitionProduceResponse(ErrorCode.UNSUPPORTED_VERSION, message=text)
                    )
                )
                return
            answer = await connection.send(_API, {"topics": [topic]})
        except (NoLeaderError, ConnectionFailedError) as error:
            self._last_reason = str(error)
            code = getattr(error, "final_code", ErrorCode.NONE)
            if code:
                self._perform(
                    self._sequencer.on_unanswerable(
                        PartitionProduceResponse(code, message=str(error))
                    )
                )
            else:
                self._back_off(elsewhere=True)
            return
        self._take_description(answer.topics[0].partitions[0], identity.producer_id)

    def _take_description(self, found: Any, producer_id: int) -> None:
        """Handles one partition of a DescribeProducers response."""
        code = found.error_code
        if code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            text = f"{_API} needs the right to read {self.topic}"
            self._perform(
                self._sequencer.on_unanswerable(PartitionProduceResponse(code.value, message=text))
            )
        elif code.value != ErrorCode.NONE:
            self._last_reason = f"{_API}: {code.name.upper()}"
            self._back_off(elsewhere=True)
        else:
            entries = (one for one in found.active_producers if one.producer_id == producer_id)
            entry = next(entries, None)
            last = None if entry is None else LeaderEntry(entry.producer_epoch, entry.last_sequence)
            self._perform(self._sequencer.on_found(last))

    async def _get_new_id(self) -> None:
        try:
            if self._leased is not None:
                identity = self._leased.new_identity()
            else:
                identity = await self._around.new_identity()
        except NoLeaderError as error:
            self._last_reason = str(error)
            if error.final_code:
                answer = PartitionProduceResponse(error.final_code, message=str(error))
                self._perform(self._sequencer.on_id_refused(answer))
            else:
                self._back_off(elsewhere=False)
            return
        self._perform(self._sequencer.on_new_id(identity))

    def _data(self, batch: SequencedBatch) -> bytes:
        """The batch's bytes, built when they are first needed under these numbers."""
        piece: Piece = batch.payload
        if not piece.has_numbers:
            self._encode(piece, batch.identity, batch.base_sequence)
        return piece.data

    def _encode(self, piece: Piece, identity: Identity, base_sequence: int) -> None:
        piece.encode(
            self._settings.compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
            is_transactional=self._around.session is not None,
        )

    # --- outcomes --------------------------------------------------------------------------------

    def _take_events(self) -> None:
        if self._events:
            self._landed.set()
        while self._events:
            batch, outcome = self._events.popleft()
            if isinstance(outcome, Exception):
                self._last_reason = str(outcome)
                self._perform(self._sequencer.on_lost(batch))
                continue
            if outcome.current_leader is not None:
                self._note_leader(*outcome.current_leader)
            answer = answer_of(outcome)
            if answer.error_code:
                self._last_reason = answer.message
            self._perform(self._sequencer.on_answer(batch, answer))

    def _note_leader(self, leader_id: int, leader_epoch: int) -> None:
        if leader_id >= 0:
            self._around.cluster.note_leader(self.topic, self.partition, leader_id, leader_epoch)

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case BatchAcknowledged():
                    self._acknowledge(action)
                case Failed(batch):
                    self._around.on_failed(batch.payload.delivery, self._error(action))
                case Divided(batch, parts):
                    for part, piece in zip(
                        parts, batch.payload.divide(parts[0].record_count), strict=True
                    ):
                        part.payload = piece
                case Renumbered(batch):
                    batch.payload.has_numbers = False
                case BackOff(elsewhere):
                    self._back_off(elsewhere=elsewhere)

    def _acknowledge(self, action: BatchAcknowledged) -> None:
        self._failures_in_a_row = 0
        batch, base_offset, is_duplicate = action
        producer_id, epoch = batch.identity
        delivery: Delivery = batch.payload.delivery
        acknowledged = AcknowledgedBatch(
            self.topic,
            self.partition,
            base_offset,
            producer_id,
            epoch,
            batch.base_sequence,
            is_duplicate,
            batch.record_count,
        )
        if delivery.acknowledge(acknowledged):
            self._around.on_delivered(delivery)

    def _back_off(self, *, elsewhere: bool) -> None:
        settings = self._settings
        delay = min(
            settings.retry_backoff_s * 2 ** min(self._failures_in_a_row, 20),
            settings.retry_backoff_max_s,
        )
        self._failures_in_a_row += 1
        self._not_before = self._loop.time() + delay * self._around.rng.uniform(
            1 - _JITTER, 1 + _JITTER
        )
        self._must_refresh |= elsewhere

    def _error(self, failed: Failed) -> DeliveryError:
        return delivery_error(self.topic, self.partition, failed, self._last_reason)


class _InFlight:
    """Receives the answer to one batch."""

    __slots__ = ("_batch", "_sender")

    def __init__(self, sender: PartitionSender, batch: SequencedBatch) -> None:
        self._sender = sender
        self._batch = batch

    def take(self, row: ProducedRow) -> None:
        self._sender.note(self._batch, row)

    def fail(self, error: Exception) -> None:
        self._sender.note(self._batch, error)
