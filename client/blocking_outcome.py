"""The outcome of one batch of the blocking producer.

It does what `concurrent.futures.Future` would, with the producer's one condition instead of its own: a future
has six objects for the garbage collector, and takes its lock five times on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Condition

from echoless.client.acknowledgements import Acknowledgements


class BatchOutcome:
    """Set once, by the producer's thread; `on_done` is called with it."""

    __slots__ = (
        "_acknowledgements",
        "_condition",
        "_error",
        "_lock",
        "_on_done",
        "is_awaited",
        "size",
    )

    def __init__(
        self,
        lock: AbstractContextManager[bool],
        condition: Condition,
        on_done: Callable[[BatchOutcome], None],
    ) -> None:
        """`lock` is that of the condition: an interrupt cannot leave it taken."""
        self.is_awaited = False
        """Whether a caller waits for it, and has to be notified. Guarded by the condition."""
        self.size = 0
        """The size of the batch, once it is cut."""
        self._lock = lock
        self._condition = condition
        self._on_done = on_done
        self._acknowledgements: Acknowledgements | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._acknowledgements is not None or self._error is not None

    def set_result(self, result: Acknowledgements, /) -> None:
        self._acknowledgements = result
        self._on_done(self)

    def set_exception(self, exception: BaseException, /) -> None:
        self._error = exception
        self._on_done(self)

    def drop(self, exception: BaseException) -> None:
        """Fails a batch that was never handed over: it does not count as outstanding."""
        self._error = exception

    def exception(self) -> BaseException | None:
        return self._error

    def result(self, timeout_s: float | None = None) -> Acknowledgements:
        """Waits for the outcome. Raises its exception, and `TimeoutError`."""
        if not self.done():
            with self._lock:
                self.is_awaited = True
                if not self._condition.wait_for(self.done, timeout_s):
                    raise TimeoutError(f"the batch has no outcome after {timeout_s} s")
        if self._error is not None:
            raise self._error
        assert self._acknowledgements is not None
        return self._acknowledgements
