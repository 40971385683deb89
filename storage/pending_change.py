"""A cut of a log, or its replacement by an empty one, without the owner's thread waiting for the disk.

    change = log.start_truncation(...)    owner: from now on the log is neither appended to nor flushed
    change.run()                          any one thread: changes the files, in numbered steps
    log.finish_change(change)             owner: publishes what the log is now, and opens it again

`truncation.py` and `replacement.py` have the steps. Until the change is finished nothing else touches
the log: it takes no batches, and no flush, retention or expiry (`Log.is_changing`). Its offsets on
disk stay as the change has left them, whatever checkpoint is written (`KeptOffsets.hold`).

Called by `log.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class PendingChange(Generic[Result]):
    """One change; `publish` and `discard` take what `work` has returned."""

    def __init__(
        self,
        work: Callable[[], Result],
        publish: Callable[[Result], None],
        discard: Callable[[Result], None],
    ) -> None:
        self.error: Exception | None = None
        """The error with which `run` ended."""
        self._work = work
        self._publish = publish
        self._discard = discard
        self._results: list[Result] = []
        """The result, until it is published or discarded."""
        self._has_run = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Does the work, unless it was done or cancelled. Raises what the work does."""
        with self._lock:
            if self._has_run:
                return
            self._has_run = True
            try:
                self._results.append(self._work())
            except Exception as error:
                self.error = error
                raise

    def publish(self) -> None:
        """Has the owner's state follow the work, if it was done and not cancelled since."""
        with self._lock:
            while self._results:
                self._publish(self._results.pop())

    def cancel(self) -> None:
        """Waits for `run` if it is running, keeps it from starting, and discards the result."""
        with self._lock:
            self._has_run = True
            while self._results:
                self._discard(self._results.pop())
