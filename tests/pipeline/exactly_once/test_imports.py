"""Imports of the sink in a process of Spark's, which each micro-batch pays for more than once."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """
import sys
import echoless.pipeline.exactly_once.writers, echoless.pipeline.exactly_once.sink
print(*sorted({"pandas", "typer", "obstore", "aiohttp", "kazoo", "uvloop"} & set(sys.modules)))
"""

_READ = """
import sys
import echoless.pipeline.exactly_once.data_source
print(*sorted({"aiokafka", "pyarrow.compute", "echoless.pipeline.exactly_once.sink"} & set(sys.modules)))
"""


def test_neither_commands_nor_pandas_are_imported() -> None:
    """Each takes 0.1 to 0.4 s of processor time; Spark plans and ends a batch in processes that live for one call."""
    assert _printed(_LOADED) == []


def test_a_read_is_planned_without_the_sink() -> None:
    """Two processes of Spark's plan a job, and the sink's imports took more than half of what each has of ours (0.14 s)."""
    assert _printed(_READ) == []


def _printed(script: str) -> list[str]:
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return loaded.stdout.split()
