"""The processor time of another process, as benchmarks read it."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.request_cost import processor_s

_CHILD = """
import sys, threading, time

def work():
    begun = time.thread_time()
    while time.thread_time() - begun < 0.1:
        pass

thread = threading.Thread(target=work)
thread.start()
thread.join()
print(time.process_time(), flush=True)
sys.stdin.readline()
"""


def test_the_time_of_a_thread_that_has_ended_counts() -> None:
    """A broker's threads come and go, and the time of one that has gone was lost; the loop's own time is without it."""
    command = [sys.executable, "-c", _CHILD]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        own_s = float(child.stdout.readline())
        found_s, main_s = processor_s(child.pid), processor_s(child.pid, main_thread_only=True)
        child.communicate("\n")
    assert own_s <= found_s < own_s + 1
    assert main_s <= found_s - 0.1
