"""Spark's Python processes do not look through what is imported after each task."""

from __future__ import annotations

import subprocess
import sys

from tests.pipeline.exactly_once.attempts import rows

_CALLS = """
import gc, os
from echoless.pipeline.frozen_imports import freeze_imports
freeze_imports("task")
print(gc.get_freeze_count() > 0)
os.environ["SPARK_REUSE_WORKER"] = "1"
freeze_imports("task")
frozen = gc.get_freeze_count()
print(frozen > 1000)
kept = [[number] for number in range(500)]
freeze_imports("task")
print(gc.get_freeze_count() == frozen)
"""


def test_imports_are_frozen_once_and_only_in_processes_of_sparks() -> None:
    """A driver that runs for months has garbage of its own."""
    ran = subprocess.run([sys.executable, "-c", _CALLS], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True", "True"]


def test_a_task_freezes_them(attempts, monkeypatch) -> None:
    """It is the last thing that it does: by then everything is imported."""
    calls: list[str] = []
    monkeypatch.setattr(
        "echoless.pipeline.exactly_once.partition_writer.freeze_imports", calls.append
    )
    attempts.run([rows(10)])
    assert calls == ["write_partition"]
