"""The requests of one connection: frames in, one after the other, as far as the connection is not held back.

A request is processed as soon as it arrives, even while earlier ones wait (for replicas, for data, for a flush). What
the frames mean is up to the dispatcher, so both ports share this file. A connection gets turns (`loop_turn.py`), so
that a pipeline of requests cannot starve other connections.

Back-pressure: reading stops while there is a reason to hold (`hold.py`), while `INFLIGHT_REQUESTS_MAX` answers are
outstanding, or while small requests that wait take too much memory (`waiting_requests.py`).

The layers are base classes, not objects that call each other: every request passes through all of them, and their few
counters are compared before each.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from echoless.broker.metrics import LATENCY_BOUNDS_S, Latencies, Metrics
from echoless.broker.network.answers import AnsweringConnection, Buffers
from echoless.broker.network.hold import Hold
from echoless.broker.network.loop_turn import LOOP_TURN, NOTABLE_S, Reads
from echoless.broker.network.memory_budget import MemoryBudget, Reservation
from echoless.broker.network.promise import Promise
from echoless.broker.network.request import (
    CloseConnectionError,
    NeedsFrameUntil,
    NeedsNoFrame,
    OfNoApi,
    Peer,
)
from echoless.broker.network.unsent_answers import UnsentAnswers
from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame, FrameReceiver

INFLIGHT_REQUESTS_MAX: Final = 64
_SCRATCH: Final = bytearray(64 * 1024)
"""Receives bytes that are to be discarded."""

Dispatched = Buffers | Awaitable[Buffers | None] | None
"""A framed answer, one still to come, or None if the client expects none."""
Dispatch = Callable[[Frame, Peer], Dispatched]
"""Raises `DecodeError` or `CloseConnectionError` if the connection has to be closed."""


class ReadConnection(AnsweringConnection):
    """The frames of a connection, and the reasons not to process them now."""

    def __init__(
        self,
        dispatch: Dispatch,
        peer: Peer,
        *,
        frame_size_max: int,
        budget: MemoryBudget,
        unsent: UnsentAnswers,
        metrics: Metrics,
        latencies: Latencies | None,
    ) -> None:
        super().__init__(peer, budget=budget, unsent=unsent, metrics=metrics, latencies=latencies)
        self.dispatch = dispatch
        """Answers the frames; replaced while there are faults."""
        self._receiver = FrameReceiver(frame_size_max)
        self._frames: list[Frame] = []
        """Small frames that were received and not processed yet, the first one at the end: those of one read."""
        self._reservation: Reservation | None = None
        """The memory for the large frame now arriving."""
        self._reads = Reads()
        self._pause: asyncio.TimerHandle | None = None
        self._pause_ends_at = 0.0
        self._last_active = time.monotonic()

    # --- reasons to hold ---

    def mute(self) -> None:
        """Reads and processes nothing more until `unmute`; to be called while a request is processed, or at the entrance."""
        self._holds.add(Hold.MUTED)

    def unmute(self) -> None:
        """Goes on with what has arrived meanwhile."""
        self._end_hold(Hold.MUTED)

    def pause(self, seconds: float) -> None:
        """Reads and processes nothing more for so long; of several pauses the one that ends last counts."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        if self._transport is None or (self._pause is not None and ends_at <= self._pause_ends_at):
            return
        if self._pause is not None:
            self._pause.cancel()
        self._holds.add(Hold.PAUSED)
        self._pause_ends_at = ends_at
        self._pause = loop.call_at(ends_at, self._end_pause)
        self._update_reading()

    def _end_pause(self) -> None:
        self._pause = None
        self._end_hold(Hold.PAUSED)

    def _rest(self) -> None:
        """Goes on in a later turn of the loop, when those before have had theirs."""
        if Hold.RESTING not in self._holds:
            self._holds.add(Hold.RESTING)
            LOOP_TURN.wait(self._end_rest)

    def _end_rest(self) -> None:
        self._end_hold(Hold.RESTING)

    def _end_hold(self, reason: Hold) -> None:
        self._holds.discard(reason)
        self._process_frames(time.monotonic())

    def pause_writing(self) -> None:
        """The client does not read its answers: nothing more is read from it either."""
        self._holds.add(Hold.UNREAD)
        self._count_written_as_unsent()
        self._update_reading()

    def resume_writing(self) -> None:
        self._last_active = now = time.monotonic()
        self._holds.discard(Hold.UNREAD)
        self._count_written_as_sent()
        self._flush_slots()
        self._pump(now)

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
        if self._is_held_back and Hold.DRAINING not in self._holds:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # --- processing ---

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        if self._holds and Hold.DRAINING in self._holds:
            return memoryview(_SCRATCH)
        return self._receiver.writable()

    def buffer_updated(self, nbytes: int) -> None:
        if self._holds and Hold.DRAINING in self._holds:
            return
        self._last_active = now = time.monotonic()
        self._metrics.received_bytes_total += nbytes
        self._reads.have_filled_buffer = self._receiver.received(nbytes)
        if self._reservation is not None:
            self._reservation.progressed(nbytes, now)
        if LOOP_TURN.used_s or self._is_joining:
            self._pump(now)
        else:
            self._process_frames(now)

    def go_on(self) -> None:
        self._pump(time.monotonic())

    def _pump(self, now: float) -> None:
        """Processes every complete frame that back-pressure allows, for one turn at most."""
        if self._is_joining:
            return
        if LOOP_TURN.used_s and LOOP_TURN.is_crowded:
            self._rest()
            self._update_reading()
        else:
            self._process_frames(now)

    def _process_frames(self, now: float) -> None:
        """Processes frames from `now` on, by the clock of the process."""
        self._is_joining = True
        began_at = now
        try:
            now = self._process_turn(now)
        except (DecodeError, CloseConnectionError) as error:
            now = time.monotonic()
            self.close(str(error))
        except Exception as error:  # noqa: BLE001 - a bug costs its client, not the broker
            now = time.monotonic()
            self._on_bug(error)
        finally:
            self._is_joining = False
            if self._joined:
                self._write_joined()
        taken_s = now - began_at
        if taken_s >= NOTABLE_S:
            LOOP_TURN.count(taken_s)
        if self._reads.have_filled_buffer and self._reads.end_turn(taken_s):
            self._rest()
        if self._holds or self._slots or self._waiting or self._is_held_back:
            self._update_reading()

    def _process_turn(self, now: float) -> float:
        """Dispatches frames until none is left, or something holds the connection back; returns the time then."""
        turn_ends_at, taken_at = LOOP_TURN.ends_at(now), now
        latencies, receiver, frames = self._latencies, self._receiver, self._frames
        holds, slots = self._holds, self._slots
        while not (holds or slots or self._waiting) or self._may_read():
            if not frames:
                frames = self._frames = receiver.take_frames()
                if not frames:
                    self._reserve_for_large_frame()
                    break
            frame = frames.pop()
            dispatched = self.dispatch(frame, self._peer)
            if type(dispatched) is tuple and not slots and self._reservation is None:
                self._write(dispatched)  # the usual case
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
        return now

    def _take_over(self, dispatched: Dispatched, frame: Frame, taken_at: float) -> bool:
        """Writes the answer in its turn; returns whether the request is over: it is written, or none is due."""
        if isinstance(dispatched, Promise):
            slot = self._new_slot(frame, taken_at)
            if self._reservation is not None:
                self._release()
            elif dispatched.waits_for_others:
                self._wait_with(slot, len(frame))
            self._answer_when_kept(dispatched, slot)
        elif type(dispatched) is tuple or isinstance(dispatched, Sequence):
            self._release()
            if not self._slots:
                self._write(dispatched)
                return True
            self._fill(self._new_slot(frame, taken_at), dispatched)
        elif dispatched is None:
            self._release()
            return True
        else:
            self._take_over_later(dispatched, frame, taken_at)
        return False

    def _take_over_later(
        self, answer: Awaitable[Buffers | None], frame: Frame, taken_at: float
    ) -> None:
        slot = self._new_slot(frame, taken_at, is_request=not isinstance(answer, OfNoApi))
        if isinstance(answer, NeedsNoFrame):
            self._release()
        elif self._reservation is not None:
            reservation, self._reservation = self._reservation, None
            self._keep_memory(slot, answer, reservation)
        else:
            self._wait_with(slot, len(frame))
            if isinstance(answer, NeedsFrameUntil):
                answer.processed.add_done_callback(lambda _: self._give_back(slot))
        self._answer_later(answer, slot)

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
            self._holds.add(Hold.RESERVING)

    def _on_reserved(self) -> None:
        self._holds.discard(Hold.RESERVING)
        self._update_reading()

    def _release(self) -> None:
        """Releases the memory of the frame that was arriving."""
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            self._holds.discard(Hold.RESERVING)
            reservation.release()

    def _drop_frames(self) -> None:
        """Forgets what was received and not processed."""
        self._release()
        self._receiver.abandon()
        self._frames.clear()
