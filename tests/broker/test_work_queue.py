"""The queue of the threads: every piece to one of them, and no thread woken for nothing."""

from __future__ import annotations

import threading

from echoless.broker.work_queue import Taker, WorkQueue


class Thread(threading.Thread):
    """Takes pieces until None."""

    def __init__(self, queue: WorkQueue[int]) -> None:
        super().__init__(daemon=True)
        self.queue = queue
        self.taken: list[int] = []
        self.taker: Taker[int] = Taker()

    def run(self) -> None:
        while (piece := self.queue.take(self.taker)) is not None:
            self.taken.append(piece)


def test_every_piece_is_taken_once() -> None:
    """Whichever thread takes it, and in the order of the pieces."""
    queue: WorkQueue[int] = WorkQueue()
    threads = [Thread(queue) for _ in range(4)]
    for thread in threads:
        thread.start()
    for piece in range(2000):
        queue.put(piece)
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()
    assert sorted(piece for thread in threads for piece in thread.taken) == list(range(2000))
    assert all(thread.taken == sorted(thread.taken) for thread in threads)


def test_a_piece_wakes_the_thread_that_was_idle_last() -> None:
    """Only that one: another would ask for the interpreter, find nothing, and wait again."""
    queue: WorkQueue[int] = WorkQueue()
    idle = [Asleep() for _ in range(3)]
    for taker in idle:
        queue.take(taker)  # type: ignore[arg-type]
    queue.put(7)
    assert [taker.given for taker in idle] == [None, None, 7]
    assert [taker.woken.is_awake for taker in idle] == [False, False, True]
    queue.put(8)
    assert [taker.given for taker in idle] == [None, 8, 7]


def test_pieces_wait_while_all_threads_are_busy() -> None:
    """They come in their order, and can be dropped before anyone has taken them."""
    queue: WorkQueue[int] = WorkQueue()
    for piece in (1, 2, 3):
        queue.put(piece)
    queue.put(None)
    assert queue.take(Taker()) == 1
    assert queue.drop_waiting() == [2, 3]
    queue.put(4)
    assert queue.take(Taker()) == 4


class Asleep:
    """A thread that waits for a piece, and continues when the test lets it."""

    def __init__(self) -> None:
        self.given: int | None = None
        self.woken = self
        self.is_awake = False

    def acquire(self) -> None:
        """Begins to wait: this thread has better things to do."""

    def release(self) -> None:
        self.is_awake = True
