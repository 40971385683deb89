"""Spares Spark's Python processes most of the garbage collection that they do after each call.

A worker of Spark's daemon runs a full collection after each task, and so do those that plan and end a batch. With some 500 imported
modules each takes 40 to 60 ms of processor time, which was all that a small batch cost above its rows. What is imported is
never garbage.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import Final

_WORKERS: Final = "SPARK_REUSE_WORKER"
"""Set by Spark in the environment of processes that it uses again."""
_frozen: set[str] = set()


def freeze_imports(call: str, environment: Mapping[str, str] = os.environ) -> None:
    """Takes what exists after the first such call in a process of Spark's out of later collections.

    Garbage in cycles that exists then is never freed, which is why this is done once for each kind of call.
    """
    if environment.get(_WORKERS) and call not in _frozen:
        _frozen.add(call)
        gc.freeze()
