"""Memory of large requests stays with the process that takes it again and again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_ROUNDS = 100
_FAULTS = f"""
import resource, sys
from echoless.broker.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def take_and_free():
    blocks = [bytearray(1_000_000) for _ in range(3)]
for _ in range(3):
    take_and_free()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({_ROUNDS}):
    take_and_free()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(which: str) -> int:
    """Page faults while three blocks of 1 MB were taken and freed many times."""
    command = [sys.executable, "-c", _FAULTS, which]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has other rules")
def test_the_pages_of_large_blocks_are_not_taken_anew_each_time() -> None:
    """Three blocks have 732 pages, as two frames and an answer might."""
    assert faults("kept") < _ROUNDS < faults("given back")
