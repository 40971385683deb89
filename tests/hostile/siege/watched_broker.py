"""`python -m tests.hostile.siege.watched_broker`: a broker whose event loop is measured from inside.

A wall clock cannot tell a loop that is held from a process that waits for a busy machine, so these
things are measured that scheduling does not change:

* the processor time that the loop's thread spends between two beats of a timer. The timer can beat
  between any two callbacks, so this is the longest run of callbacks in one turn of the loop, plus one
  interval at most;
* how much of it the garbage collector took;
* how long a fixed piece of work takes there (`yardstick`): a turn is as long as the machine is slow;
* the calls of fsync and fdatasync on the loop's thread, which should be none;
* where the loop was when it was held: `faulthandler` writes the stack when the processor timer ends.

Each line of `$SIEGE_BEATS` sums up one window as JSON (see `beats.Beat`).
"""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import gc
import json
import os
import resource
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.siege import yardstick
from tests.hostile.siege.beats import BEATS_FILE, DESCRIPTORS, INTERVAL_S, STACK_AFTER_S, WINDOW_S

_STACKS_BYTES = 64 * 1024
"""The end of what `faulthandler` wrote: the newest stacks."""
_STACK_BEGINS = "(most recent call first):\n"


class LoopWatch:
    """Beats on the loop and writes one line a window."""

    def __init__(self, path: Path) -> None:
        self._out = path.open("a", buffering=1)
        self._stacks = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open as long as the process
        self._schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", 0)
        self._loop_thread = threading.get_ident()
        self._beat_at, self._beat_cpu = time.monotonic(), time.thread_time()
        self._beat_queued = self._queued_s()
        self._window_ends = self._beat_at + WINDOW_S
        self._clear()
        self._syncs: list[str] = []
        self._is_serving = False
        self._collection_began = self._collected_since_beat_s = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        gc.callbacks.append(self._on_collection)
        _leave_signal_to_this_thread()
        # Not all threads: to look at those that run, from a signal, ends the process now and then.
        faulthandler.register(signal.SIGPROF, self._stacks, all_threads=False)
        # The interpreter takes the handler away when it ends; the timer must not outlive it.
        atexit.register(signal.setitimer, signal.ITIMER_PROF, 0)
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._counting(getattr(os, name)))
        loop.call_later(INTERVAL_S, self._beat, loop)

    def serving(self) -> None:
        """Called at the ready line: syncs of the start are no syncs of the loop."""
        self._is_serving = True

    def _counting(self, sync: Callable[[Any], None]) -> Callable[[Any], None]:
        def counted(descriptor: Any) -> None:
            if self._is_serving and threading.get_ident() == self._loop_thread:
                frames = traceback.extract_stack(limit=7)[:-1]
                self._syncs.append(" < ".join(f"{f.name} {f.lineno}" for f in reversed(frames)))
            sync(descriptor)

        return counted

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if threading.get_ident() != self._loop_thread:
            return
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            self._collected_since_beat_s += time.thread_time() - self._collection_began

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        now, cpu, queued = time.monotonic(), time.thread_time(), self._queued_s()
        held_s = cpu - self._beat_cpu
        if held_s > self._held_s:
            self._held_s, self._stack = held_s, self._take_stack()
            self._collected_s = self._collected_since_beat_s
        self._collected_since_beat_s = 0.0
        self._late_s = max(self._late_s, now - self._beat_at - INTERVAL_S)
        own_s = now - self._beat_at - INTERVAL_S - (queued - self._beat_queued)
        self._own_s = max(self._own_s, own_s)
        self._queued_in_window_s += queued - self._beat_queued
        self._yardsticks.append(yardstick.measure_s())
        if now > self._window_ends:
            self._write(now)
        self._beat_at, self._beat_cpu = time.monotonic(), time.thread_time()
        self._beat_queued = self._queued_s()
        signal.setitimer(signal.ITIMER_PROF, STACK_AFTER_S)
        loop.call_later(INTERVAL_S, self._beat, loop)

    def _queued_s(self) -> float:
        """How long this thread was ready to run while the machine ran others."""
        return int(os.pread(self._schedstat, 200, 0).split()[1]) / 1e9

    def _take_stack(self) -> str:
        """The newest stack that the processor timer left; none for a short hold."""
        size = os.fstat(self._stacks.fileno()).st_size
        self._stacks.seek(max(0, size - _STACKS_BYTES))
        text = self._stacks.read().decode(errors="replace")
        os.ftruncate(self._stacks.fileno(), 0)
        os.lseek(self._stacks.fileno(), 0, os.SEEK_SET)
        return text.rpartition(_STACK_BEGINS)[2]

    def _write(self, now: float) -> None:
        line = {
            "at": now,
            "held_s": round(self._held_s, 4),
            "collected_s": round(self._collected_s, 4),
            "late_s": round(self._late_s, 4),
            "own_s": round(self._own_s, 4),
            "queued_s": round(self._queued_in_window_s, 4),
            "yardstick_s": round(statistics.median(self._yardsticks), 6),
            "syncs": self._syncs,
            "stack": self._stack,
        }
        self._out.write(json.dumps(line) + "\n")
        self._window_ends = now + WINDOW_S
        self._syncs = []
        self._clear()

    def _clear(self) -> None:
        self._held_s = self._collected_s = self._late_s = self._own_s = 0.0
        self._queued_in_window_s = 0.0
        self._yardsticks: list[float] = []
        self._stack = ""


def _leave_signal_to_this_thread() -> None:
    """A signal of the timer may reach any thread that does not block it, whose stack says nothing."""
    run = threading.Thread.run

    def run_blocking(thread: threading.Thread) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
        run(thread)

    threading.Thread.run = run_blocking  # type: ignore[method-assign]


def main() -> int:
    """Serves as `echoless serve` does, with few descriptors and a watch on the loop."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    import uvloop

    watch = LoopWatch(Path(os.environ[BEATS_FILE]))
    new_event_loop = uvloop.new_event_loop

    def watched_loop() -> asyncio.AbstractEventLoop:
        loop = new_event_loop()
        watch.start(loop)
        return loop

    uvloop.new_event_loop = watched_loop
    from echoless.broker import serve

    real_write = sys.stdout.write

    def write(text: str) -> int:
        if text.startswith("ready "):
            watch.serving()
        return real_write(text)

    sys.stdout.write = write  # type: ignore[method-assign]
    return serve.main()


if __name__ == "__main__":
    sys.exit(main())
