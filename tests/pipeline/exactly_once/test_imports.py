"""Imports of the sink in a process of Spark's, which each micro-batch pays for more than once."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """
import sys
import echoless.pipeline.exactly_once.data_source, echoless.pipeline.exactly_once.sink
print(*sorted({"pandas", "typer", "obstore", "aiohttp", "kazoo", "uvloop"} & set(sys.modules)))
"""


def test_neither_commands_nor_pandas_are_imported() -> None:
    """Each takes 0.1 to 0.4 s of processor time; Spark plans and ends a batch in processes that live for one call."""
    loaded = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []
