"""The way of a leader's questions to coordinators of transactions: here without a socket, to others by `add_or_verify`.

Questions that come in one turn of the event loop, or while as many requests as may be are on their way, go together: one
message for each coordinator, and in it one row for each transaction, however many batches ask. Every question is answered:
with COORDINATOR_NOT_AVAILABLE if nothing better is known, and then its partitions may have been added nevertheless.

A question of a client that has added its partitions itself, about an id that this broker coordinates, is answered at once: it
changes nothing, and each request that waits keeps later ones of its connection waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.essential_task import reported_task
from echoless.broker.limited_log import LimitedLog
from echoless.broker.replication.peer_connection import PeerError
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.transactions import (
    AddOrVerify,
    AnsweredNowOrLater,
    TransactionAnswered,
    TransactionAsk,
    read_add_or_verify_answer,
)
from echoless.protocol.state_records.transaction_records import TransactionPartition

limited: Final = LimitedLog(logging.getLogger(__name__))

PARTITIONS_PER_ROW: Final = 1000
"""A row with so many partitions takes no more."""
ROWS_BYTES: Final = 1024 * 1024
"""A message with so many bytes of rows takes no more."""
IN_FLIGHT_MAX: Final = 4
"""Requests to one coordinator at a time: each may wait for a record to be committed."""
ANSWERED_S: Final = 10.0
"""Time that another broker has for its answer."""
_PARTITION_BYTES: Final = 32
"""Bytes of a partition in a message besides the name of its topic; at least."""

AskHere = Callable[[TransactionAsk], Awaitable[TransactionAnswered]]
LookHere = Callable[[TransactionAsk], TransactionAnswered | None]
"""Answers if this broker certainly coordinates the id, and knows at once; otherwise None."""


class CoordinatorDoor:
    """The door of one broker. Belongs to the event loop."""

    def __init__(
        self,
        broker_id: int,
        cluster: ClusterMembership,
        coordinator_of: Callable[[str], int],
        ask_here: AskHere,
        look_here: LookHere = lambda _: None,
    ) -> None:
        """`coordinator_of` raises `KafkaError` if none is known; `ask_here` and `look_here` ask a coordinator on this broker."""
        self._broker_id = broker_id
        self._cluster = cluster
        self._coordinator_of = coordinator_of
        self._ask_here = ask_here
        self._look_here = look_here
        self._queues: dict[int, _CoordinatorQueue] = {}

    def ask(self, ask: TransactionAsk) -> AnsweredNowOrLater:
        """Asks the id's coordinator; a question has at most `PARTITIONS_PER_ROW` partitions. A future never raises."""
        if not ask.is_add:
            answered = self._look_here(ask)
            if answered is not None:
                return answered
        try:
            broker_id = self._coordinator_of(ask.transactional_id)
        except KafkaError as error:
            return TransactionAnswered(error.code)
        queue = self._queues.get(broker_id)
        if queue is None:
            send = self._send_here if broker_id == self._broker_id else self._send_to(broker_id)
            queue = self._queues[broker_id] = _CoordinatorQueue(f"broker {broker_id}", send)
        return queue.add(ask)

    async def close(self) -> None:
        """Ends all questions; each that is open is answered COORDINATOR_NOT_AVAILABLE."""
        for queue in self._queues.values():
            await queue.close()

    async def _send_here(self, asks: Sequence[TransactionAsk]) -> Sequence[TransactionAnswered]:
        return await asyncio.gather(*map(self._ask_here, asks))

    def _send_to(self, broker_id: int) -> _Send:
        async def send(asks: Sequence[TransactionAsk]) -> Sequence[TransactionAnswered]:
            message = AddOrVerify(self._broker_id, asks).to_message()
            answer = await self._cluster.ask(broker_id, message, timeout_s=ANSWERED_S)
            return read_add_or_verify_answer(answer, asks)

        return send


_Send = Callable[[Sequence[TransactionAsk]], Awaitable[Sequence[TransactionAnswered]]]


class _Row:
    """The questions about one transaction that go together."""

    __slots__ = ("_places", "_waiting", "key")

    def __init__(self, key: TransactionAsk) -> None:
        """`key`: the question without partitions."""
        self.key = key
        self._places: dict[TransactionPartition, int] = {}
        self._waiting: list[
            tuple[tuple[TransactionPartition, ...], asyncio.Future[TransactionAnswered]]
        ] = []

    @property
    def is_full(self) -> bool:
        return len(self._places) >= PARTITIONS_PER_ROW

    def add(self, ask: TransactionAsk) -> asyncio.Future[TransactionAnswered]:
        for partition in ask.partitions:
            self._places.setdefault(partition, len(self._places))
        answered: asyncio.Future[TransactionAnswered] = asyncio.get_running_loop().create_future()
        self._waiting.append((ask.partitions, answered))
        return answered

    def question(self) -> TransactionAsk:
        return self.key._replace(partitions=tuple(self._places))

    @property
    def size(self) -> int:
        """Bytes in a message, about."""
        names = sum(len(topic) + _PARTITION_BYTES for topic, _, _ in self._places)
        return names + len(self.key.transactional_id)

    def answer(self, answered: TransactionAnswered) -> None:
        codes = answered.partition_codes
        for partitions, future in self._waiting:
            if future.done():
                continue  # its client is gone
            if answered.error_code is ErrorCode.NONE:
                own = tuple([codes[self._places[one]] for one in partitions])
                future.set_result(answered._replace(partition_codes=own))
            else:
                future.set_result(answered)


class _CoordinatorQueue:
    """The questions for the ids that one broker coordinates."""

    def __init__(self, name: str, send: _Send) -> None:
        self._name = name
        self._send = send
        self._rows: deque[_Row] = deque()
        self._open: dict[TransactionAsk, _Row] = {}
        """The row that takes more questions like this one, whatever their partitions."""
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, ask: TransactionAsk) -> asyncio.Future[TransactionAnswered]:
        key = ask._replace(partitions=())
        row = self._open.get(key)
        if row is None or row.is_full:
            row = self._open[key] = _Row(key)
            self._rows.append(row)
        answered = row.add(ask)
        if len(self._tasks) < IN_FLIGHT_MAX:
            task = reported_task(self._run(), f"questions about transactions to {self._name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answered

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while rows := self._take():
            _answer_all(rows)

    async def _run(self) -> None:
        """Sends request after request while there are questions; what comes in this turn of the loop goes along."""
        while rows := self._take():
            try:
                answers = await self._send([row.question() for row in rows])
                for row, answered in zip(rows, answers, strict=True):
                    row.answer(answered)
            except (PeerError, DecodeError, KafkaError) as error:
                text = "%s has not answered about %d transactions: %s"
                limited.log(logging.WARNING, self._name, text, self._name, len(rows), error)
            finally:
                _answer_all(rows)

    def _take(self) -> list[_Row]:
        rows: list[_Row] = []
        size = 0
        while self._rows and size < ROWS_BYTES:
            row = self._rows.popleft()
            size += row.size
            rows.append(row)
        for row in rows:
            if self._open.get(row.key) is row:
                del self._open[row.key]
        return rows


def _answer_all(rows: Sequence[_Row]) -> None:
    """Answers what has no answer yet."""
    for row in rows:
        row.answer(TransactionAnswered(ErrorCode.COORDINATOR_NOT_AVAILABLE))
