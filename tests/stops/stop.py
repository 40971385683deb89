"""One process that gets signals: when, how often, and how it ended."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.stops.losses import Loss
from tests.support.echoless import Echoless
from tests.support.queued_time import ProcessWatch

STOP_S_MAX: Final = 5.0
GIVEN_UP_S: Final = 40.0
"""After this long a process is killed, and counts as one that never ends."""
MARKER: Final = ".clean-shutdown"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
_STARTED_S_MAX: Final = 120.0


class Stop(NamedTuple):
    """The end of a process."""

    broker_id: int
    loss: Loss
    while_starting: bool
    seconds: float
    """From the first signal on, less what the machine took for others."""
    exit_status: int | None
    """None if it had to be killed."""
    is_clean: bool
    """Whether its log directory is closed: the next start recovers nothing."""

    @property
    def is_good(self) -> bool:
        return self.seconds <= STOP_S_MAX and self.exit_status == 0 and self.is_clean


class SignalPlan(NamedTuple):
    """The signals for one process; each after a pause."""

    signals: list[tuple[float, signal.Signals]]

    @classmethod
    def drawn(cls, dice: random.Random, *, first_within_s: float) -> Self:
        """One signal, or two as from an impatient operator."""
        signals = [(dice.uniform(0, first_within_s), dice.choice(_SIGNALS))]
        if dice.random() < 1 / 4:
            signals.append((dice.uniform(0, 2), dice.choice(_SIGNALS)))
        return cls(signals)


def stop(
    broker_id: int, broker: Echoless, loss: Loss, plan: SignalPlan, *, while_starting: bool
) -> Stop:
    """Signals the broker, or a new start of it, and waits for its end."""
    if while_starting:
        process = _begin_to_start(broker)
        pid, exit_status, kill = process.pid, process.poll, process.kill
    else:
        server = broker.process
        pid, exit_status, kill = server.pid, lambda: server.exit_status, server.kill
    (first_pause_s, first), *later = plan.signals
    _wait(exit_status, first_pause_s)
    given_up = time.monotonic() + GIVEN_UP_S
    with ProcessWatch(pid) as watch:
        _signal(pid, first, exit_status)
        for pause_s, number in later:
            _wait(exit_status, pause_s)
            _signal(pid, number, exit_status)
        _wait(exit_status, given_up - time.monotonic())
    status = exit_status()
    kill()
    is_clean = (broker.data_dir / MARKER).exists()
    return Stop(broker_id, loss, while_starting, watch.net_s, status, is_clean)


def _signal(pid: int, number: signal.Signals, exit_status: Callable[[], int | None]) -> None:
    """Sends a signal, unless the process has ended."""
    if exit_status() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait(exit_status: Callable[[], int | None], seconds: float) -> None:
    """Waits this long, or until the process has ended."""
    deadline = time.monotonic() + seconds
    while exit_status() is None and time.monotonic() < deadline:
        time.sleep(0.005)


def _begin_to_start(broker: Echoless) -> subprocess.Popen[bytes]:
    """Starts the broker without waiting; it handles signals by now."""
    root = Path(__file__).parents[2]
    with broker.process.log_path.open("ab") as log:
        command = [*broker.process.prefix, *broker._command()]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=root)
    deadline = time.monotonic() + _STARTED_S_MAX
    while not heeds_signals(process.pid) and process.poll() is None:
        assert time.monotonic() < deadline, "the start does not begin"
        time.sleep(0.005)
    return process


def heeds_signals(pid: int) -> bool:
    """Whether SIGTERM is caught, or blocked in the first thread because another one waits for it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name in {"SigBlk", "SigCgt"} and int(mask, 16) >> (signal.SIGTERM - 1) & 1:
                return True
    return False
