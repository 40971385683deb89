"""How many descriptors this process has open, and of what: a worker that leaks them hangs much later.

`select` takes no descriptor above 1023, and py4j's callback server waits with it: a Spark test that runs
after enough leaks waits for ever.
"""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from typing import Final

DESCRIPTORS_MAX: Final = 512
_DESCRIPTORS: Final = Path("/proc/self/fd")


def complaint() -> str | None:
    """Say what is open if that is more than `DESCRIPTORS_MAX`; collects garbage first."""
    if not _DESCRIPTORS.exists() or _count() <= DESCRIPTORS_MAX:
        return None
    gc.collect()
    if _count() <= DESCRIPTORS_MAX:
        return None
    targets = Counter(map(_target, _DESCRIPTORS.iterdir()))
    return f"{targets.total()} descriptors are open: {targets.most_common(5)}"


def _count() -> int:
    return sum(1 for _ in _DESCRIPTORS.iterdir())


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink()).partition(":")[0]
    except OSError:  # it was the directory itself
        return "closed meanwhile"
