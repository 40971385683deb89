"""The answers of one connection: they leave in the order of their requests, as many as possible in one write.

An answer that is ready when its request is processed, and has none before it, is written at once, without a slot. Every
other answer has a slot: what comes later, a `Promise` or a task, fills it, and slots leave from the front. Answers to
the requests of one read, and those that one flush or fetch made ready, are joined and written together.

A request that waits for its answer may need memory: a large one its reservation, a small one its bytes. Its slot
keeps both, and gives them back once.

The lowest of three layers: `reading.py` decides when requests are processed, `connection.py` when it begins and ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Final

from echoless.broker.doubt import StateInDoubtError
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metrics import LATENCY_BOUNDS_S, Latencies, Metrics
from echoless.broker.network.hold import Hold
from echoless.broker.network.memory_budget import MemoryBudget, Reservation
from echoless.broker.network.pieces import Pieces
from echoless.broker.network.promise import Promise
from echoless.broker.network.request import (
    CloseConnectionError,
    NeedsFrameUntil,
    Peer,
)
from echoless.broker.network.unsent_answers import UnsentAnswers
from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame

limited: Final = LimitedLog(logging.getLogger("echoless.broker.network.connection"))

ANSWERS_WRITTEN_TOGETHER_BYTES: Final = 64 * 1024
"""The answers to the requests of one read leave in one write, unless they are more than this."""

Buffers = Sequence[bytes]
"""A framed answer."""


class AnswerSlot:
    """One answer's position in the order of requests. `ready` once `buffers` is final."""

    __slots__ = ("buffers", "latency", "promise", "ready", "reservation", "taken_at", "waiting")

    def __init__(self, latency: list[float] | None = None, taken_at: float = 0.0) -> None:
        self.latency = latency
        """The row in which the time until the answer is written is counted; `taken_at` is its beginning."""
        self.taken_at = taken_at
        self.buffers: Buffers | None = None
        self.promise: Promise | None = None
        self.ready = False
        self.reservation: Reservation | None = None
        """The memory that a large request holds until it is answered."""
        self.waiting = 0
        """Bytes of a small request that waits for its answer."""

    def count_latency(self) -> None:
        """Counts how long the request took whose answer has been written."""
        latency = self.latency
        if latency is not None:
            took_s = time.monotonic() - self.taken_at
            latency[bisect_left(LATENCY_BOUNDS_S, took_s)] += 1
            latency[-1] += took_s


class AnsweringConnection(asyncio.BufferedProtocol):
    """The answers of a connection, to come and to leave."""

    _is_held_back = False
    """Whether frames may be left that back-pressure did not let it process."""

    def __init__(
        self,
        peer: Peer,
        *,
        budget: MemoryBudget,
        unsent: UnsentAnswers,
        metrics: Metrics,
        latencies: Latencies | None,
    ) -> None:
        self._peer = peer
        self.host = peer.host
        """The address without the port; memory and turns are shared out per host."""
        self._budget = budget
        self._unsent_answers = unsent
        self._metrics = metrics
        self._latencies = latencies
        """The latencies of Kafka requests, by API key; None on the native port."""
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()
        """Set once the transport is gone, and no answer can leave."""
        self._holds: set[Hold] = {Hold.NO_TRANSPORT}
        """Why nothing is processed now; empty nearly always."""
        self._slots: deque[AnswerSlot] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        """One for each answer that takes more than the event a `Promise` waits for."""
        self._promised: set[AnswerSlot] = set()
        """Slots whose promise has not been taken."""
        self._kept: list[AnswerSlot] = []
        """Promised slots that are ready, taken together in the next step of the loop."""
        self._all_kept: asyncio.Future[None] | None = None
        """Done when no promise is left, if anyone waits for that."""
        self._waiting = 0
        """Bytes of the small requests waiting for their answers."""
        self._is_joining = False
        """Whether answers are made that will leave together: requests are being processed."""
        self._joined: list[bytes] = []
        """The answers that will."""
        self._joined_bytes = 0
        self._unsent = 0
        """Bytes of answers that wait, in slots or in the transport of a client that does not read."""
        self._unsent_written = 0
        """Bytes of them that the transport has."""

    # --- what the layers above do ---

    def close(self, reason: str = "") -> None:
        """Closes the connection now; answers not yet written are lost to the client."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Processes what the answers have held up."""
        raise NotImplementedError

    # --- answers to come ---

    def _new_slot(self, frame: Frame, taken_at: float, *, is_request: bool = True) -> AnswerSlot:
        """Takes the next position in the order; only requests of an API count for its latencies."""
        latencies = self._latencies if is_request and len(frame) > 1 else None
        slot = AnswerSlot(None if latencies is None else latencies[frame[1]], taken_at)
        self._slots.append(slot)
        return slot

    def _fill(self, slot: AnswerSlot, buffers: Buffers | None) -> None:
        """Keeps an answer until those before it have left."""
        slot.buffers, slot.ready = buffers, True
        self._count_unsent(_size(buffers))

    def _answer_when_kept(self, promise: Promise, slot: AnswerSlot) -> None:
        slot.promise = promise
        self._promised.add(slot)
        promise.watch(partial(self._note_kept, slot))

    def _note_kept(self, slot: AnswerSlot) -> None:
        if slot.waiting:
            self._give_back(slot)
        if not self._kept:
            asyncio.get_running_loop().call_soon(self._take_kept)
        self._kept.append(slot)

    def _take_kept(self) -> None:
        """Takes the answers that became ready in the last step of the loop; they leave in one write."""
        kept, self._kept = self._kept, []
        self._promised.difference_update(kept)
        self._is_joining = True
        try:
            for slot in kept:
                self._take(slot)
        except CloseConnectionError as error:
            self.close(str(error))
        except Exception as error:  # noqa: BLE001 - a bug costs its client, not the broker
            self._on_bug(error)
        finally:
            self._is_joining = False
        self._flush_slots()
        self._write_joined()
        self._note_all_kept()
        if self._is_held_back:
            self.go_on()

    def _take(self, slot: AnswerSlot) -> None:
        if self._transport is None:
            return
        assert slot.promise is not None
        buffers: Buffers = slot.promise.answer()
        slot.promise = None
        if self._slots[0] is slot and (not self._holds or Hold.UNREAD not in self._holds):
            self._slots.popleft()
            self._write(buffers)
            slot.count_latency()
        else:
            self._fill(slot, buffers)

    def _note_all_kept(self) -> None:
        if self._all_kept is not None and not self._promised:
            self._all_kept.set_result(None)
            self._all_kept = None

    def _answer_later(self, answer: Awaitable[Buffers | None], slot: AnswerSlot) -> None:
        task = asyncio.ensure_future(self._fill_later(slot, answer))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_answered, slot))

    async def _fill_later(self, slot: AnswerSlot, answer: Awaitable[Buffers | None]) -> None:
        try:
            buffers = await answer
        except (DecodeError, CloseConnectionError) as error:
            self.close(str(error))
            return
        finally:
            self._give_back(slot)
        if self._lost.is_set():
            return
        self._fill(slot, buffers)
        self._flush_slots()
        self.go_on()

    def _on_answered(self, slot: AnswerSlot, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._give_back(slot)  # also for a task cancelled before it started
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_bug(error)

    def _on_bug(self, error: BaseException) -> None:
        """Closes the connection whose request the broker failed to serve; see `doubt.py`."""
        self._metrics.requests_failed_total += 1
        self.close("a request failed inside the broker")
        if isinstance(error, StateInDoubtError):
            context = {"message": "a request failed inside the broker", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        else:
            message = "a request failed inside the broker; this is a bug"
            limited.log(logging.ERROR, self.host, message, exc_info=error)

    def _in_progress(self) -> set[asyncio.Future[None]]:
        """Futures that are done when the requests in progress are answered."""
        work: set[asyncio.Future[None]] = {*self._tasks}
        if self._promised:
            if self._all_kept is None:
                self._all_kept = asyncio.get_running_loop().create_future()
            work.add(self._all_kept)
        return work

    def _abandon_answers(self) -> None:
        """Ends every wait: the client is gone."""
        for task in self._tasks:
            task.cancel()
        for slot in self._promised:
            assert slot.promise is not None
            slot.promise.abandon()
            self._give_back(slot)
        self._promised.clear()
        self._note_all_kept()

    # --- the memory of requests that wait for their answer ---

    def _keep_memory(
        self, slot: AnswerSlot, answer: Awaitable[Buffers | None], reservation: Reservation
    ) -> None:
        """Keeps what a large request has reserved, until it is answered or needs its frame no more."""
        slot.reservation = reservation
        if isinstance(answer, NeedsFrameUntil):
            reservation.process()
            answer.processed.add_done_callback(lambda _: reservation.release())
        else:
            reservation.work()

    def _wait_with(self, slot: AnswerSlot, size: int) -> None:
        """Counts the bytes of a small request that waits for others than the broker."""
        slot.waiting = size
        self._count_waiting(size)

    def _give_back(self, slot: AnswerSlot) -> None:
        """Releases the memory of this slot's request; does nothing if already released."""
        if slot.reservation is not None:
            slot.reservation.release()
        if slot.waiting:
            self._count_waiting(-slot.waiting)
            slot.waiting = 0

    def _count_waiting(self, change: int) -> None:
        self._waiting += change
        self._budget.waiting.count(self.host, change)

    # --- answers that leave ---

    @property
    def _may_write(self) -> bool:
        """Whether answers that waited may leave: the client reads them, or gets no more after them."""
        holds = self._holds
        return not holds or Hold.UNREAD not in holds or Hold.DRAINING in holds

    def _flush_slots(self) -> None:
        """Writes the answers that are next in order, as far as the client reads them."""
        slots = self._slots
        while slots and slots[0].ready and self._may_write:
            buffers = slots[0].buffers
            if isinstance(buffers, Pieces):
                slots[0].ready = False  # it keeps its position until the last piece is out
                self._write_piece(buffers, 0)
                return
            slot = slots.popleft()
            self._count_unsent(-_size(buffers))
            if buffers is not None:
                self._write(buffers)
            slot.count_latency()

    def _write_piece(self, pieces: Pieces, position: int) -> None:
        if self._transport is None:
            return
        (data,) = pieces
        end = position + pieces.piece_bytes
        self._transport.write(data[position:end])
        self._metrics.sent_bytes_total += min(end, len(data)) - position
        if end < len(data):
            loop = asyncio.get_running_loop()
            loop.call_later(pieces.pause_s, self._write_piece, pieces, end)
        elif pieces.closes:
            self.close(pieces.closes)
        else:
            self._slots.popleft().count_latency()
            self._count_unsent(-len(data))
            self._flush_slots()
            self.go_on()

    def _write(self, buffers: Buffers) -> None:
        self._joined += buffers
        self._joined_bytes += len(buffers[0]) if len(buffers) == 1 else _size(buffers)
        if not self._is_joining or self._joined_bytes > ANSWERS_WRITTEN_TOGETHER_BYTES:
            self._write_joined()

    def _write_joined(self) -> None:
        joined = self._joined
        if not joined:
            return
        if self._transport is not None:
            self._metrics.sent_bytes_total += self._joined_bytes
            if self._joined_bytes > ANSWERS_WRITTEN_TOGETHER_BYTES:
                self._transport.writelines(joined)
            else:
                self._transport.write(b"".join(joined))
        self._joined, self._joined_bytes = [], 0

    # --- answers that the client does not read ---

    def _count_unsent(self, size: int) -> None:
        self._unsent += size
        self._unsent_answers.count(self, size)

    def _count_written_as_unsent(self) -> None:
        """Counts what the transport holds: its client does not read."""
        if self._transport is not None:
            self._unsent_written = self._transport.get_write_buffer_size()
            self._count_unsent(self._unsent_written)

    def _count_written_as_sent(self) -> None:
        self._count_unsent(-self._unsent_written)
        self._unsent_written = 0

    def _drop_answers(self) -> None:
        """Forgets what was not written yet."""
        self._slots.clear()
        self._count_unsent(-self._unsent)
        self._unsent_written = 0

    @property
    def untaken_bytes(self) -> int:
        """Bytes of answers that the client has not read, as far as this process can see."""
        transport = self._transport
        written = 0 if transport is None else transport.get_write_buffer_size()
        return self._unsent - self._unsent_written + written

    def give_up(self, reason: str) -> None:
        """Closes the connection at once because others need the memory it holds."""
        transport = self._transport
        self._drop_answers()
        self._joined.clear()
        self.close(reason)
        if transport is not None:
            transport.abort()


def _size(buffers: Buffers | None) -> int:
    return 0 if buffers is None else sum(map(len, buffers))
