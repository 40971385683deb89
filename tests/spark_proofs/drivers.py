"""The drivers of a run: one after the other on one checkpoint, and sometimes two at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.spark_proofs.spark_cluster import Driver

LOOK_AGAIN_S: Final = 0.02
BATCH_TIMEOUT_S: Final = 300.0
"""A query that begins no batch for this long is stuck, which is a failure."""
_FAILURES_MAX: Final = 30


class StuckError(Exception):
    """The query makes no progress; the message has the end of the drivers' log."""


class Drivers:
    """A driver that ends before everything is written, for whatever reason, is replaced."""

    def __init__(self, directory: Path, options: Mapping[str, object]) -> None:
        self.failures = 0
        """How many ended by themselves with an error."""
        self.started = 0
        self._checkpoint = Path(str(options["checkpoint"]))
        self._log = directory / "drivers.log"
        self._options = options
        self._running: list[Driver] = []
        self._is_done = False

    def start(self) -> None:
        """Starts one more driver, whether or not there is one."""
        self.started += 1
        self._running.append(Driver(self._log, self._options))

    def kill(self) -> None:
        """Sends SIGKILL to all."""
        for driver in self._running:
            driver.kill()
        self._running.clear()

    def split(self, seconds: float) -> None:
        """Pauses all while a new one begins to work, then resumes them."""
        paused = list(self._running)
        for driver in paused:
            driver.pause()
        self.start()
        time.sleep(seconds)
        for driver in paused:
            driver.resume()

    def wait_for_batch(self, batch: int) -> None:
        """Returns when the query has begun it, or everything is written. Raises `StuckError`."""
        deadline = time.monotonic() + BATCH_TIMEOUT_S
        while self._batches_begun() <= batch and not self._is_done:
            self._look(deadline)

    def wait_until_done(self) -> None:
        """Returns when a driver found nothing left to do. Raises `StuckError`."""
        begun = -1
        while not self._is_done:
            if (now := self._batches_begun()) > begun:
                begun, deadline = now, time.monotonic() + BATCH_TIMEOUT_S
            self._look(deadline)

    def _look(self, deadline: float) -> None:
        """Starts a driver if there is none, and waits a moment."""
        for driver in list(self._running):
            if not driver.is_running:
                self._running.remove(driver)
                self._is_done |= driver.exit_status == 0
                self.failures += driver.exit_status != 0
        if self._is_done:
            return
        if time.monotonic() > deadline or self.failures > _FAILURES_MAX:
            raise StuckError(f"the query does not go on: {self._said()}")
        if not self._running:
            self.start()
        time.sleep(LOOK_AGAIN_S)

    def _batches_begun(self) -> int:
        """Batches begun: the checkpoint has one file for each, written before it begins."""
        names = [path.name for path in self._checkpoint.glob("offsets/*")]
        return max((int(name) for name in names if name.isdecimal()), default=-1) + 1

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]
