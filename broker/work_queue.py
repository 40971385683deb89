"""Work for threads of which most are idle: each piece wakes one of them, the one that was idle last.

`queue.SimpleQueue` wakes two: a thread that has taken its piece lets the next one look, which finds nothing and
waits again. For a flush that is another wake-up, and another thread that asks for the interpreter while the event
loop runs: half of all system calls of a broker with `log_flush=commit`, and a fifth of its loop's time.

Called by `threads.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Piece = TypeVar("Piece")


class Taker(Generic[Piece]):
    """One thread that takes pieces."""

    __slots__ = ("given", "woken")

    def __init__(self) -> None:
        self.given: Piece | None = None
        """The piece that it was woken for."""
        self.woken = threading.Lock()
        """Held while it has nothing to do; who gives it a piece releases it."""
        self.woken.acquire()


class WorkQueue(Generic[Piece]):
    """Pieces in the order in which they were put, and the threads that wait for one. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Piece | None] = deque()
        """Pieces for which no thread was idle."""
        self._idle: list[Taker[Piece]] = []
        """Threads that wait; none while pieces do. The last one is the first to be woken: its memory is the warmest."""

    def put(self, piece: Piece | None) -> None:
        """Gives a piece to an idle thread, or to the first that has ended its own. None: it is to end."""
        with self._lock:
            if not self._idle:
                self._waiting.append(piece)
                return
            taker = self._idle.pop()
            taker.given = piece
        taker.woken.release()

    def take(self, taker: Taker[Piece]) -> Piece | None:
        """Returns the next piece, once there is one."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(taker)
        taker.woken.acquire()
        piece, taker.given = taker.given, None
        return piece

    def drop_waiting(self) -> list[Piece]:
        """Returns the pieces that no thread has taken; none of them will be."""
        with self._lock:
            dropped = [piece for piece in self._waiting if piece is not None]
            self._waiting.clear()
        return dropped
