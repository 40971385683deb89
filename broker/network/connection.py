"""One connection: frames in, answers out in the order of their requests.

A request is processed as soon as it arrives, even while earlier ones wait (for replicas, for data,
for a flush); answers queue in `_slots` and leave in request order. What the frames mean is up to
the dispatcher, so both ports share this file.

A connection gets turns (`loop_turn.py`), so that a pipeline of requests cannot starve other connections.

Back-pressure: reading stops while `INFLIGHT_REQUESTS_MAX` answers are outstanding, while the
client does not read its answers, or while the broker's request memory is used up.

The file is longer than most on purpose. Reading, the queue of answers and back-pressure are three
sides of the same few counters, and every request passes through all of them: as objects of their
own they would call each other several times per request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, cast

from echoless.broker.config.listener_names import PLAINTEXT
from echoless.broker.doubt import StateInDoubtError
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metrics import LATENCY_BOUNDS_S, Latencies, Metrics
from echoless.broker.network.client_host import client_host
from echoless.broker.network.loop_turn import LOOP_TURN, NOTABLE_S, Reads
from echoless.broker.network.memory_budget import MemoryBudget, Reservation
from echoless.broker.network.pieces import Pieces
from echoless.broker.network.promise import Promise
from echoless.broker.network.request import (
    ANONYMOUS,
    CloseConnectionError,
    ConnectionLogin,
    NeedsFrameUntil,
    NeedsNoFrame,
    OfNoApi,
    Peer,
)
from echoless.broker.network.unsent_answers import UnsentAnswers
from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame, FrameReceiver

logger = logging.getLogger(__name__)
limited: Final = LimitedLog(logger)

INFLIGHT_REQUESTS_MAX: Final = 64
WRITE_BUFFER_BYTES_MAX: Final = 1024 * 1024
LINGER_S: Final = 10.0
"""How long the client of a closed connection may go on reading answers already written."""
ANSWERS_WRITTEN_TOGETHER_BYTES: Final = 64 * 1024
"""The answers to the requests of one read leave in one write, unless they are more than this."""
GOODBYE_S: Final = 0.5
"""How long a client that sent a request recently may take to close its side."""
_SCRATCH: Final = bytearray(64 * 1024)
"""Receives bytes that are to be discarded."""

_ABSENT: Final = 1
"""The transport is not there yet, or no longer."""
_DRAINING: Final = 2
"""No further requests are accepted."""
_RESTING: Final = 4
"""Others have their turn, or the connection is muted or paused."""
_RESERVING: Final = 8
"""A large frame waits for memory."""
_UNREAD: Final = 16
"""The client does not read its answers."""

Buffers = Sequence[bytes]
Dispatched = Buffers | Awaitable[Buffers | None] | None
"""A framed answer, one still to come, or None if the client expects none."""
Dispatch = Callable[[Frame, Peer], Dispatched]
"""Raises `DecodeError` or `CloseConnectionError` if the connection has to be closed."""


class _Slot:
    """One answer's position in the response order. `ready` once `buffers` is final."""

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


class Entrance(Protocol):
    """Mutes new connections until their turn comes (`broker/quotas/entrance.py`)."""

    def enter(self, connection: Connection) -> bool: ...

    def leave(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """A client's connection to either port."""

    must_log_in = False
    """Whether its client has to log in, and has not yet."""
    on_admitted: Callable[[Connection], None] | None = None
    """Called when the client has logged in for the first time."""
    _is_held_back = False
    """Whether frames may be left that back-pressure did not let it process."""

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        connection_id: int,
        listener_name: str = PLAINTEXT,
        principal: str = ANONYMOUS,
        frame_size_max: int,
        budget: MemoryBudget,
        unsent: UnsentAnswers,
        connections: set[Connection],
        metrics: Metrics,
        latencies: Latencies | None = None,
    ) -> None:
        self.dispatch = dispatch
        """Answers the frames; replaced while there are faults."""
        self._latencies = latencies
        """The latencies of Kafka requests, by API key; None on the native port."""
        self._receiver = FrameReceiver(frame_size_max)
        self._frames: list[Frame] = []
        """Small frames that were received and not processed yet, the first one at the end: those of one read."""
        self._budget = budget
        self._unsent_answers = unsent
        self._connections = connections
        self._metrics = metrics
        self._peer = Peer(connection_id, "?", principal=principal, listener=listener_name)
        self._peer.pause = self.pause
        self.host = self._peer.host
        """The address without the port; memory and turns are shared out per host."""
        self._transport: asyncio.Transport | None = None
        self._slots: deque[_Slot] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        """One for each answer that takes more than the event a `Promise` waits for."""
        self._promised: set[_Slot] = set()
        """Slots whose promise has not been taken."""
        self._kept: list[_Slot] = []
        """Promised slots that are ready, taken together in the next step of the loop."""
        self._all_kept: asyncio.Future[None] | None = None
        """Done when no promise is left, if anyone waits for that."""
        self._reservation: Reservation | None = None
        """The memory for the large frame now arriving."""
        self._holds = _ABSENT
        """Why nothing is processed now, the reasons added up; 0 nearly always."""
        self._waiting = 0
        """Bytes of the small requests waiting for their answers."""
        self._unsent = 0
        self._unsent_written = 0
        self._linger: asyncio.TimerHandle | None = None
        self._answers: list[bytes] = []
        """Answers to the requests being processed, written together when none is left."""
        self._answers_size = 0
        self._lost = asyncio.Event()
        self._ending: asyncio.Future[None] | None = None
        """Waits for the last answers of a client that has ended its side."""
        self._is_pumping = False
        self._is_muted = False
        self._reads = Reads()
        self.entrance: Entrance | None = None
        """The place where the connection may have to wait before it is read."""
        self._pause: asyncio.TimerHandle | None = None
        self._pause_ends_at = 0.0
        self._last_active = time.monotonic()

    # --- lifecycle ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports only resemble asyncio's classes; they are not subclasses.
        self._transport = cast("asyncio.Transport", transport)
        self._holds &= ~_ABSENT
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self._peer.address = f"{client_host(address[0])}:{address[1]}"
            self.host = self._peer.host
        self._connections.add(self)
        self._metrics.connections_open += 1
        if self.entrance is not None:
            self.entrance.enter(self)
            if self._is_muted:
                self._update_reading()
        logger.debug("connection %d from %s", self._peer.connection_id, self._peer.address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._holds |= _ABSENT
        self._lost.set()
        self._peer.pause = None
        if self._pause is not None:
            self._pause.cancel()
        if self.entrance is not None:
            self.entrance.leave(self)
        if self._peer.login is not None:
            self._peer.login.connection_lost()
        self._connections.discard(self)
        self._metrics.connections_open -= 1
        # Not now: a task that has not taken its first step would never reach its `finally`.
        asyncio.get_running_loop().call_soon(self._cancel_tasks)
        if self._linger is not None:
            self._linger.cancel()
        self._slots.clear()
        self._count_unsent(-self._unsent)
        self._unsent_written = 0
        self._release()
        self._receiver.abandon()
        self._frames.clear()
        logger.debug("connection %d ended%s", self._peer.connection_id, f": {exc}" if exc else "")

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        for slot in self._promised:
            assert slot.promise is not None
            slot.promise.abandon()
            self._give_back(slot)
        self._promised.clear()
        self._note_all_kept()
        if self._ending is not None:
            self._ending.cancel()

    def close(self, reason: str = "") -> None:
        """Closes the connection now; answers not yet written are lost to the client."""
        if self._transport is None:
            return
        if reason:
            limited.log(
                logging.WARNING,
                self.host,
                "closing connection %d from %s: %s",
                self._peer.connection_id,
                self._peer.address,
                reason,
            )
        self._write_answers()
        transport, self._transport = self._transport, None
        self._holds |= _ABSENT
        self._release()
        transport.close()
        if transport.get_write_buffer_size():
            # A client that never reads its answers would hold them, and the socket, forever.
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def close_after_answers(self, reason: str) -> None:
        """Closes the connection when the answers in flight have left, after `LINGER_S` at the latest.

        To be called when nothing more is read (`mute`).
        """
        if self._transport is None:
            return
        end = _Slot()
        end.buffers, end.ready = Pieces(b"", 1, 0.0, closes=reason), True
        self._slots.append(end)
        self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.close, reason)

    def is_idle_since(self, moment: float) -> bool:
        """Whether nothing has moved since `moment` (monotonic seconds) and no request is in progress."""
        return self._last_active < moment and not self._tasks and not self._promised

    # --- log-in ---

    def require_login(self, login: ConnectionLogin, frame_size_max: int) -> None:
        """Sets who decides what this client may send before it has logged in."""
        self._peer.login = login
        self.must_log_in = True
        self._receiver.limit(frame_size_max)

    def admit(self, principal: str, frame_size_max: int) -> None:
        """Names the client, which has logged in."""
        self._peer.principal = principal
        self._receiver.limit(frame_size_max)
        if self.must_log_in:
            self.must_log_in = False
            if self.on_admitted is not None:
                self.on_admitted(self)

    def mute(self) -> None:
        """Reads and processes nothing more until `unmute`; to be called while a request is processed, or at the entrance."""
        self._is_muted = True
        self._holds |= _RESTING

    def unmute(self) -> None:
        """Goes on with what has arrived meanwhile."""
        self._is_muted = False
        self._end_rest()

    def pause(self, seconds: float) -> None:
        """Reads and processes nothing more for so long; of several pauses the one that ends last counts."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        if self._transport is None or (self._pause is not None and ends_at <= self._pause_ends_at):
            return
        if self._pause is not None:
            self._pause.cancel()
        self._holds |= _RESTING
        self._pause_ends_at = ends_at
        self._pause = loop.call_at(ends_at, self._end_pause)
        self._update_reading()

    def _end_pause(self) -> None:
        self._pause = None
        self._end_rest()

    @property
    def peer(self) -> Peer:
        """The other end."""
        return self._peer

    @property
    def idle_ms(self) -> int:
        """Milliseconds since the client last sent something, or was sent an answer."""
        return int((time.monotonic() - self._last_active) * 1000)

    @property
    def principal(self) -> str:
        """Who the client is."""
        return self._peer.principal

    @property
    def untaken_bytes(self) -> int:
        """Bytes of answers that the client has not read, as far as this process can see."""
        transport = self._transport
        written = 0 if transport is None else transport.get_write_buffer_size()
        return self._unsent - self._unsent_written + written

    def give_up(self, reason: str) -> None:
        """Closes the connection at once because others need the memory it holds."""
        transport = self._transport
        self._slots.clear()
        self._answers.clear()
        self._count_unsent(-self._unsent)
        self._unsent_written = 0
        self.close(reason)
        if transport is not None:
            transport.abort()

    async def drain(self) -> None:
        """Accepts no further requests, answers those in flight, then closes.

        Whatever the client still sends is read and discarded until it has seen the end: closing with
        unread bytes makes the kernel reset the connection and drop answers that have not left yet.
        """
        was_active = not self.is_idle_since(time.monotonic() - GOODBYE_S)
        self._holds |= _DRAINING
        self._release()
        self._flush_slots()
        self._update_reading()
        if work := self._in_progress():
            await asyncio.wait(work)
        transport = self._transport
        if was_active and transport is not None and not transport.is_closing():
            if transport.can_write_eof():
                transport.write_eof()
            else:  # TLS: the end says goodbye and waits for the client's
                self.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._lost.wait()
        self.close()

    # --- reading ---

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return memoryview(_SCRATCH) if self._holds & _DRAINING else self._receiver.writable()

    def buffer_updated(self, nbytes: int) -> None:
        if self._holds & _DRAINING:
            return
        self._last_active = now = time.monotonic()
        self._metrics.received_bytes_total += nbytes
        self._reads.have_filled_buffer = self._receiver.received(nbytes)
        if self._reservation is not None:
            self._reservation.progressed(nbytes, now)
        if LOOP_TURN.used_s or self._is_pumping:
            self._pump(now)
        else:
            self._process_frames(now)

    def eof_received(self) -> bool:
        """Ends the connection, after what is in flight: the client may have ended only its side.

        Not for longer than `GOODBYE_S`, because most clients are gone and read no answer.
        """
        if not self._tasks and not self._promised:
            return False
        if not self._holds & _DRAINING:
            self._ending = asyncio.ensure_future(self._end())
        return True

    async def _end(self) -> None:
        if work := self._in_progress():  # else it ended before this task began
            await asyncio.wait(work, timeout=GOODBYE_S)
        self.close()

    def _in_progress(self) -> set[asyncio.Future[None]]:
        """Futures that are done when the requests in progress are answered."""
        work: set[asyncio.Future[None]] = {*self._tasks}
        if self._promised:
            if self._all_kept is None:
                self._all_kept = asyncio.get_running_loop().create_future()
            work.add(self._all_kept)
        return work

    def _pump(self, now: float) -> None:
        """Processes every complete frame that back-pressure allows, for one turn at most."""
        if self._is_pumping:
            return
        if LOOP_TURN.used_s and LOOP_TURN.is_crowded:
            self._rest()
            self._update_reading()
        else:
            self._process_frames(now)

    def _process_frames(self, now: float) -> None:  # noqa: C901, PLR0912 - flat, because each call costs every read
        """Processes frames from `now` on, by the clock of the process."""
        self._is_pumping = True
        began_at = taken_at = now
        turn_ends_at = LOOP_TURN.ends_at(now)
        latencies, receiver, frames = self._latencies, self._receiver, self._frames
        try:
            while not (self._holds or self._slots or self._waiting) or self._may_read():
                if not frames:
                    frames = self._frames = receiver.take_frames()
                    if not frames:
                        self._reserve_for_large_frame()
                        break
                frame = frames.pop()
                dispatched = self.dispatch(frame, self._peer)
                if type(dispatched) is tuple and not self._slots and self._reservation is None:
                    self._write(dispatched)  # as nearly always
                    is_over = True
                else:
                    is_over = self._take_over(dispatched, frame, taken_at)
                now = time.monotonic()
                if is_over and latencies is not None:
                    latency = latencies[frame[1]]  # the API key is below 256
                    took_s = now - taken_at
                    latency[bisect_left(LATENCY_BOUNDS_S, took_s)] += 1
                    latency[-1] += took_s
                taken_at = now
                if now > turn_ends_at:
                    self._rest()
                if not (frames or receiver.has_more):
                    break
        except (DecodeError, CloseConnectionError) as error:
            self.close(str(error))
        except Exception as error:  # noqa: BLE001 - a bug costs its client, not the broker
            self._on_bug(error)
        finally:
            self._is_pumping = False
            if self._answers:
                self._write_answers()
            taken_s = now - began_at
            if taken_s >= NOTABLE_S:
                LOOP_TURN.count(taken_s)
            if self._reads.have_filled_buffer and self._reads.end_turn(taken_s):
                self._rest()
        if self._holds or self._slots or self._waiting or self._is_held_back:
            self._update_reading()

    def _rest(self) -> None:
        """Goes on in a later turn of the loop, when those before have had theirs."""
        if not self._holds & _RESTING:
            self._holds |= _RESTING
            LOOP_TURN.wait(self._end_rest)

    def _end_rest(self) -> None:
        if self._is_muted or self._pause is not None:
            return
        self._holds &= ~_RESTING
        self._process_frames(time.monotonic())

    def _may_read(self) -> bool:
        return not (
            self._holds
            or (self._slots and len(self._slots) >= INFLIGHT_REQUESTS_MAX)
            or (self._waiting and self._budget.waiting.is_crowded(self.host))
        )

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._is_held_back = not self._may_read()
        if self._is_held_back and not self._holds & _DRAINING:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # --- the memory of large frames ---

    def _reserve_for_large_frame(self) -> None:
        """Reserves memory for the next bytes of a large frame; reading stops while that has to wait."""
        size = self._receiver.wanted_bytes
        if not size:
            return
        if self._reservation is None:
            self._reservation = self._budget.begin(self.host, self.give_up)
        held = self._reservation.held
        if size > held and not self._reservation.grow(size, self._on_reserved):
            self._holds |= _RESERVING

    def _on_reserved(self) -> None:
        self._holds &= ~_RESERVING
        self._update_reading()

    def _release(self) -> None:
        """Releases the memory of the frame that was arriving."""
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            self._holds &= ~_RESERVING
            reservation.release()

    # --- answering ---

    def _take_over(self, dispatched: Dispatched, frame: Frame, taken_at: float) -> bool:
        """Writes the answer in its turn; returns whether the request is over: it is written, or none is due."""
        if isinstance(dispatched, Promise):
            self._answer_when_kept(dispatched, len(frame), self._new_slot(frame, taken_at))
        elif type(dispatched) is tuple or isinstance(dispatched, Sequence):
            self._release()
            if not self._slots:
                self._write(dispatched)
                return True
            self._answer_in_turn(dispatched, self._new_slot(frame, taken_at))
        elif dispatched is None:
            self._release()
            return True
        else:
            is_request = not isinstance(dispatched, OfNoApi)
            slot = self._new_slot(frame, taken_at, is_request=is_request)
            self._answer_later(dispatched, len(frame), slot)
        return False

    def _new_slot(self, frame: Frame, taken_at: float, *, is_request: bool = True) -> _Slot:
        latencies = self._latencies if is_request and len(frame) > 1 else None
        slot = _Slot(None if latencies is None else latencies[frame[1]], taken_at)
        self._slots.append(slot)
        return slot

    def _answer_in_turn(self, buffers: Buffers, slot: _Slot) -> None:
        """Keeps an answer until those before it have left."""
        slot.buffers, slot.ready = buffers, True
        self._count_unsent(_size(buffers))

    def _answer_when_kept(self, promise: Promise, size: int, slot: _Slot) -> None:
        if self._reservation is not None:
            self._release()
        elif promise.waits_for_others:
            slot.waiting = size
            self._count_waiting(size)
        slot.promise = promise
        self._promised.add(slot)
        promise.watch(partial(self._note_kept, slot))

    def _note_kept(self, slot: _Slot) -> None:
        if slot.waiting:
            self._give_back(slot)
        if not self._kept:
            asyncio.get_running_loop().call_soon(self._take_kept)
        self._kept.append(slot)

    def _take_kept(self) -> None:
        """Takes the answers that became ready in the last step of the loop; they leave in one write."""
        kept, self._kept = self._kept, []
        self._promised.difference_update(kept)
        self._is_pumping = True
        try:
            for slot in kept:
                self._take(slot)
        except Exception as error:  # noqa: BLE001 - a bug costs its client, not the broker
            self._on_bug(error)
        finally:
            self._is_pumping = False
        self._flush_slots()
        self._write_answers()
        self._note_all_kept()
        if self._is_held_back:
            self._pump(time.monotonic())

    def _take(self, slot: _Slot) -> None:
        if self._transport is None:
            return
        assert slot.promise is not None
        buffers: Buffers = slot.promise.answer()
        slot.promise = None
        if self._slots[0] is slot and not self._holds & _UNREAD:
            self._slots.popleft()
            self._write(buffers)
            _count_latency(slot)
        else:
            slot.buffers, slot.ready = buffers, True
            self._count_unsent(_size(buffers))

    def _note_all_kept(self) -> None:
        if self._all_kept is not None and not self._promised:
            self._all_kept.set_result(None)
            self._all_kept = None

    def _answer_later(self, answer: Awaitable[Buffers | None], size: int, slot: _Slot) -> None:
        if isinstance(answer, NeedsNoFrame):
            self._release()
        elif self._reservation is not None:
            slot.reservation, self._reservation = self._reservation, None
            if isinstance(answer, NeedsFrameUntil):
                slot.reservation.process()
                answer.processed.add_done_callback(partial(_release_memory, slot))
            else:
                slot.reservation.work()
        else:
            slot.waiting = size
            self._count_waiting(size)
        task = asyncio.ensure_future(self._fill(slot, answer))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_answered, slot))

    def _give_back(self, slot: _Slot) -> None:
        """Releases the memory of this slot's request; does nothing if already released."""
        if slot.reservation is not None:
            slot.reservation.release()
        if slot.waiting:
            self._count_waiting(-slot.waiting)
            slot.waiting = 0

    def _count_waiting(self, change: int) -> None:
        self._waiting += change
        self._budget.waiting.count(self.host, change)

    def _on_answered(self, slot: _Slot, task: asyncio.Task[None]) -> None:
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

    async def _fill(self, slot: _Slot, answer: Awaitable[Buffers | None]) -> None:
        try:
            slot.buffers = await answer
        except (DecodeError, CloseConnectionError) as error:
            self.close(str(error))
            return
        finally:
            self._give_back(slot)
        if self._lost.is_set():
            return
        slot.ready = True
        self._count_unsent(_size(slot.buffers))
        self._flush_slots()
        self._pump(time.monotonic())

    @property
    def _may_write(self) -> bool:
        """Whether answers that waited may leave: the client reads them, or gets no more after them."""
        return self._holds & (_DRAINING | _UNREAD) != _UNREAD

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
            _count_latency(slot)

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
            _count_latency(self._slots.popleft())
            self._count_unsent(-len(data))
            self._flush_slots()
            self._pump(time.monotonic())

    def _write(self, buffers: Buffers) -> None:
        self._answers += buffers
        self._answers_size += len(buffers[0]) if len(buffers) == 1 else _size(buffers)
        if not self._is_pumping or self._answers_size > ANSWERS_WRITTEN_TOGETHER_BYTES:
            self._write_answers()

    def _write_answers(self) -> None:
        answers = self._answers
        if not answers:
            return
        if self._transport is not None:
            self._metrics.sent_bytes_total += self._answers_size
            if self._answers_size > ANSWERS_WRITTEN_TOGETHER_BYTES:
                self._transport.writelines(answers)
            else:
                self._transport.write(b"".join(answers))
        self._answers, self._answers_size = [], 0

    def _count_unsent(self, size: int) -> None:
        self._unsent += size
        self._unsent_answers.count(self, size)

    def pause_writing(self) -> None:
        self._holds |= _UNREAD
        if self._transport is not None:
            self._unsent_written = self._transport.get_write_buffer_size()
            self._count_unsent(self._unsent_written)
        self._update_reading()

    def resume_writing(self) -> None:
        self._last_active = now = time.monotonic()
        self._holds &= ~_UNREAD
        self._count_unsent(-self._unsent_written)
        self._unsent_written = 0
        self._flush_slots()
        self._pump(now)


def _count_latency(slot: _Slot) -> None:
    """Counts how long the request took whose answer has been written."""
    latency = slot.latency
    if latency is not None:
        took_s = time.monotonic() - slot.taken_at
        latency[bisect_left(LATENCY_BOUNDS_S, took_s)] += 1
        latency[-1] += took_s


def _release_memory(slot: _Slot, _: asyncio.Future[object]) -> None:
    if slot.reservation is not None:
        slot.reservation.release()


def _size(buffers: Buffers | None) -> int:
    return 0 if buffers is None else sum(map(len, buffers))
