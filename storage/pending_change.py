"""A cut of a log, or its replacement by an empty one, without the owner's thread waiting for the disk.

    change = log.start_truncation(...)    owner: from now on the log is neither appended to nor flushed
    change.run()                          any one thread: changes the files, in numbered steps
    log.finish_change(change)             owner: publishes what the log is now, and opens it again

`truncation.py` and `replacement.py` have the steps. Until the change is finished nothing else touches
the log: it takes no batches, and no flush, retention or expiry (`Log.is_changing`). Its offsets on
disk stay as the change has left them, whatever checkpoint is written (`KeptOffsets.hold`).

Invariant: once a change has run or was cancelled, the flush that was pending before it neither runs
nor will.
Invariant: a change that has failed or was cancelled keeps no file open.

Called by `log.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from echoless.storage.pending_flush import PendingFlush

Result = TypeVar("Result")


class PendingChange(Generic[Result]):
    """One change; `publish` takes what `work` has returned."""

    def __init__(
        self,
        work: Callable[[], Result],
        publish: Callable[[Result], None],
        *,
        flush: PendingFlush | None,
        discard: Callable[[], None],
    ) -> None:
        """Takes over the log's pending `flush`, which must touch no file from the first step on.

        `discard` closes the files that the log does not have, in any thread; it may be called twice.
        """
        self.error: Exception | None = None
        """The error with which `run` ended."""
        self._work = work
        self._publish = publish
        self._flush = flush
        self._discard = discard
        self._results: list[Result] = []
        """The result, until it is published or discarded."""
        self._has_run = False
        self._is_published = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Ends the flush, then does the work, unless it was done or cancelled.

        Raises what the work does.
        """
        with self._lock:
            if self._has_run:
                return
            self._has_run = True
            self._end_flush()
            try:
                self._results.append(self._work())
            except Exception as error:
                self.error = error
                self._discard()
                raise

    def publish(self) -> None:
        """Has the owner's state follow the work, if it was done and not cancelled since."""
        with self._lock:
            while self._results:
                self._publish(self._results.pop())
                self._is_published = True

    def cancel(self) -> None:
        """Waits for `run` if it is running, keeps it from starting, and discards the result.

        The same for the flush.
        """
        with self._lock:
            self._has_run = True
            self._end_flush()
            if not self._is_published:
                self._results.clear()
                self._discard()

    def _end_flush(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
