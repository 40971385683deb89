"""The compiled code of a broker that is measured: an installation has it, and a working tree need not.

A start that compiles its modules takes twice as long, and each does if `PYTHONDONTWRITEBYTECODE` is set.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from pathlib import Path


def compile_tree(tree: Path) -> None:
    """Compiles the broker's code in the directory that it is imported from, as an installation does."""
    rooms = (tree / "echoless").glob("*/")  # links, which are not followed
    for directory in [tree, *(room for room in rooms if room.is_dir())]:
        compileall.compile_dir(directory, quiet=1)
    if (tree / "broker" / "start_code.py").exists():  # before 0.3.0
        command = [sys.executable, "-P", "-m", "broker.start_code"]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tree)}, check=True)


def keep_compiled_code() -> None:
    """Has brokers that are started from now on write what they compile, whatever this process was told."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
