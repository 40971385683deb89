"""Sends markers to the leaders of partitions until each is in, or its partition is proved to be gone.

All that waits for one broker goes in one request, whatever transactions it is of. What fails is tried again after a while,
a little later each time, and with the leader of then; a change of its topic ends the wait. One that is on its way to a broker
which leads no more goes to the next leader at once: a machine that is gone does not answer for long. A marker that a leader
contradicts goes back to its coordinator, which logs it and has it sent again.

Invariant: while its coordinator lasts, a marker is given up only on proof that the id of its topic is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from echoless.broker.essential_task import reported_task
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.replication.peer_connection import PeerError
from echoless.broker.transactions.marker_queue import (
    MarkerDoor,
    MarkerSource,
    MissingMarkers,
    PendingMarker,
    gathered,
    to_marker,
    written,
)
from echoless.broker.transactions.partition_leaders import UNKNOWN_TOPIC, PartitionLeaders
from echoless.broker.tree.node_tree import CoordinationError
from echoless.coordinators.transactions.effects import SendMarkers
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.state_records.transaction_records import TransactionPartition

limited: Final = LimitedLog(logging.getLogger(__name__))

PARTITIONS_PER_REQUEST: Final = 1000
IN_FLIGHT_MAX: Final = 4
"""Requests to one broker at a time: one may wait for replicas."""
_NONE: Final = ErrorCode.NONE
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 2.0
_CONTRADICTED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
_RETRIES_OF_CONTRADICTED: Final = 5
"""A marker that was contradicted is sent again as if it had failed so often: after 1.6 s."""


class MarkerSender:
    """The markers that the coordinators of this broker have sent. Belongs to the event loop."""

    def __init__(self, leaders: PartitionLeaders, door: MarkerDoor) -> None:
        self._leaders = leaders
        self._door = door
        self._queues: dict[int, _BrokerQueue] = {}
        self._unknown: dict[str, list[PendingMarker]] = {}
        """Markers of topics that are not known here, by name, until the tree is asked."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._missing = MissingMarkers()
        """All markers that are missing, wherever they are."""
        self._contradicted: PendingMarker | None = None
        """The marker whose contradiction is being notified of: it is sent again, and has been missing all the time."""

    def __len__(self) -> int:
        """Return the number of markers that are missing."""
        return len(self._missing)

    @property
    def longest_wait_s(self) -> float:
        """Seconds for which the oldest marker has been missing; 0 without one."""
        since_s = self._missing.oldest_since_s
        return 0.0 if since_s is None else asyncio.get_running_loop().time() - since_s

    def send(self, source: MarkerSource, markers: SendMarkers) -> None:
        """Has a marker written in each of the partitions; its shard is notified of each."""
        now_s = asyncio.get_running_loop().time()
        partitions = sorted(markers.partitions)  # in one order on every machine
        if markers.is_retry:
            for partition in partitions:
                self._send_again(source, markers, partition, now_s)
            return
        pendings = [PendingMarker(source, markers, one, now_s) for one in partitions]
        self._missing.add(pendings)
        leaders = self._leaders.leaders_of(partitions)
        if len(set(leaders)) == 1 and leaders[0] >= 0 and not source.shard.is_over:
            self._queue_of(leaders[0]).add(pendings)  # the usual case, at a third of the cost
            return
        for leader, pending in zip(leaders, pendings, strict=True):
            self._route_to(leader, pending)

    def _send_again(
        self,
        source: MarkerSource,
        markers: SendMarkers,
        partition: TransactionPartition,
        now_s: float,
    ) -> None:
        """Sends a marker after a while that a leader has contradicted."""
        pending = self._contradicted
        if pending is None or pending.partition != partition:
            pending = PendingMarker(source, markers, partition, now_s)
            self._missing.add([pending])
        self._contradicted = None
        pending.attempts = _RETRIES_OF_CONTRADICTED
        self._wait(pending)

    def topic_changed(self, name: str) -> None:
        """Sends again what waits for a partition of this topic, or goes to another broker than its leader."""
        for pending in self._missing.of_topic(name):
            if pending.wait is not None:
                pending.wait.cancel()
                self._waited(pending)
                continue
            broker_id = pending.queued if pending.asked is None else pending.asked
            if broker_id is None:
                continue  # the tree is being asked about it
            leader = self._leaders.leader_of(pending.partition)
            if leader not in (broker_id, NO_LEADER, UNKNOWN_TOPIC):
                pending.asked = None
                self._route(pending)

    async def close(self) -> None:
        """Stops sending."""
        for pending in self._missing.clear():
            if pending.wait is not None:
                pending.wait.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _route(self, pending: PendingMarker) -> None:
        """Gives a marker to the queue of its partition's leader."""
        self._route_to(self._leaders.leader_of(pending.partition), pending)

    def _route_to(self, broker_id: int, pending: PendingMarker) -> None:
        if pending.source.shard.is_over:
            self.drop(pending)
        elif broker_id == NO_LEADER:
            self._wait(pending)
        elif broker_id == UNKNOWN_TOPIC:
            self._ask_tree(pending)
        else:
            self._queue_of(broker_id).add([pending])

    def _queue_of(self, broker_id: int) -> _BrokerQueue:
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _BrokerQueue(broker_id, self)
        return queue

    def drop(self, pending: PendingMarker) -> None:
        """Forgets a marker that another coordinator has to send by now."""
        pending.queued = None
        self._missing.remove([pending])

    def _wait(self, pending: PendingMarker) -> None:
        delay_s = min(_FIRST_WAIT_S * 2 ** min(pending.attempts, 10), _LONGEST_WAIT_S)
        pending.attempts += 1
        loop = asyncio.get_running_loop()
        pending.queued = None
        pending.wait = loop.call_later(delay_s, self._waited, pending)

    def _waited(self, pending: PendingMarker) -> None:
        pending.wait = None
        self._route(pending)

    def run(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Runs work until it ends, or the sender is closed."""
        task = reported_task(work, what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- one request ---

    async def request(self, broker_id: int, batch: Sequence[PendingMarker]) -> None:
        """Sends some markers to a broker, and deals with its answer."""
        for pending in batch:
            pending.asked = broker_id
        transactions = gathered(batch)
        markers = [to_marker(of_one) for of_one in transactions]
        try:
            codes = await self._door.write(broker_id, markers)
        except (PeerError, KafkaError, DecodeError) as error:
            text = "broker %d has not answered for %d transaction markers: %s"
            limited.log(logging.WARNING, str(broker_id), text, broker_id, len(batch), error)
            for pending in batch:
                if pending.asked == broker_id:
                    pending.asked = None
                    self._wait(pending)
            return
        for of_one, its_codes in zip(transactions, codes, strict=True):
            self._answered(broker_id, of_one, its_codes)

    def _answered(
        self, broker_id: int, of_one: Sequence[PendingMarker], codes: Sequence[ErrorCode]
    ) -> None:
        """Deals with the codes for markers of one transaction: those that are in are one event, however many they are."""
        source, are_in = of_one[0].source, list[PendingMarker]()
        for pending, code in zip(of_one, codes, strict=True):
            if pending.asked != broker_id:  # the leader of then has it
                continue
            pending.asked = None
            if code is _NONE:
                are_in.append(pending)
            elif code in _CONTRADICTED:
                self._notify_of_contradicted(pending, code)
            else:
                name = f"{pending.partition.topic}-{pending.partition.partition}"
                text = "broker %d has not taken the transaction marker of %r for %s yet: %s"
                what = (broker_id, source.transactional_id, name, code.name)
                limited.log(logging.INFO, name, text, *what)
                self._wait(pending)
        if are_in:
            self._missing.remove(are_in)
            source.shard.markers_written(source.transactional_id, written(are_in))

    def _notify_of_contradicted(self, pending: PendingMarker, code: ErrorCode) -> None:
        source, self._contradicted = pending.source, pending
        source.shard.marker_answered(source.transactional_id, pending.contradicted(code))
        if self._contradicted is not None:  # it is not sent again
            self._contradicted = None
            self._missing.remove([pending])

    # --- deleted topics ---

    def _ask_tree(self, pending: PendingMarker) -> None:
        name = pending.partition.topic
        if name in self._unknown:
            self._unknown[name].append(pending)
            return
        self._unknown[name] = [pending]
        self.run(self._settle_unknown(name), f"looking for the topic {name}")

    async def _settle_unknown(self, name: str) -> None:
        """Asks the tree about each topic of this name that has an id of its own."""
        try:
            await self._settle_each(name)
        finally:
            for pending in self._unknown.pop(name, ()):
                self._wait(pending)

    async def _settle_each(self, name: str) -> None:
        settled: dict[bytes, bool] = {}
        while pending := next(iter(self._unknown[name]), None):
            topic_id = pending.partition.topic_id
            if topic_id not in settled:
                try:
                    settled[topic_id] = await self._leaders.is_deleted(pending.partition)
                except CoordinationError as error:
                    text = "whether the topic %s of a transaction was deleted is not known: %s"
                    limited.log(logging.WARNING, name, text, name, error)
                    return
            self._unknown[name].remove(pending)
            if settled[topic_id]:
                source = pending.source
                self._missing.remove([pending])
                source.shard.partition_deleted(source.transactional_id, pending.deleted())
            else:
                self._wait(pending)


class _BrokerQueue:
    """The markers for the partitions that one broker leads."""

    def __init__(self, broker_id: int, sender: MarkerSender) -> None:
        self._broker_id = broker_id
        self._sender = sender
        self._queued: deque[PendingMarker] = deque()
        """Markers, some of which have left for another queue or a request: `PendingMarker.queued` counts."""
        self._in_flight = 0

    def add(self, several: Sequence[PendingMarker]) -> None:
        """Queues markers; what else comes in this turn of the loop goes with them."""
        for pending in several:
            pending.queued = self._broker_id
        self._queued += several
        if self._in_flight < IN_FLIGHT_MAX:
            self._in_flight += 1
            self._sender.run(self._send(), f"transaction markers for broker {self._broker_id}")

    async def _send(self) -> None:
        """Sends request after request while anything is queued."""
        try:
            while batch := self._next_batch():
                await self._sender.request(self._broker_id, batch)
        finally:
            self._in_flight -= 1

    def _next_batch(self) -> list[PendingMarker]:
        batch: list[PendingMarker] = []
        source, is_over = None, False
        while self._queued and len(batch) < PARTITIONS_PER_REQUEST:
            pending = self._queued.popleft()
            if pending.queued != self._broker_id:
                continue
            if pending.source is not source:  # those of one transaction come together
                source = pending.source
                is_over = source.shard.is_over
            if is_over:
                self._sender.drop(pending)
            else:
                pending.queued = None
                batch.append(pending)
        return batch
