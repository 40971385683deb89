"""A request to stop a run: the first SIGINT or SIGTERM, or a call.

The current batch is finished, and no other begins. A second signal ends the process at once, which is safe: the
sink resumes the batch.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Request to stop. Use it in a `with` block, which handles signals if it is in the main thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    @property
    def is_made(self) -> bool:
        return self._event.is_set()

    def make(self) -> None:
        """Makes the request; callable from any thread."""
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """Waits until the request is made, or for `timeout_s`; returns whether it was made."""
        return self._event.wait(timeout_s)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {one: signal.signal(one, self._on_signal) for one in _SIGNALS}
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.make()
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)
