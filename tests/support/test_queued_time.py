"""Time that the machine gave to others is no time of a process; time for which it slept or worked is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.support.queued_time import ProcessWatch

_PAUSE_S = 0.5


def test_a_process_that_sleeps_is_slow() -> None:
    """It has asked for no processor."""
    command = [sys.executable, "-c", f"import time; time.sleep({_PAUSE_S})"]
    with subprocess.Popen(command) as one, ProcessWatch(one.pid) as watch:
        one.wait()
    assert watch.net_s > _PAUSE_S / 2


def test_a_process_that_waits_for_a_processor_is_not() -> None:
    """Two that always could run, on one processor: the one that is watched has half of it."""
    processor = min(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(processor), sys.executable, "-c", "while True: pass"]
    both = [subprocess.Popen(command) for _ in range(2)]
    try:
        began = time.monotonic()
        with ProcessWatch(both[0].pid) as watch:
            time.sleep(4 * _PAUSE_S)
        whole_s = time.monotonic() - began
        assert watch.net_s < 0.8 * whole_s
    finally:
        for one in both:
            one.send_signal(signal.SIGKILL)
            one.wait()
