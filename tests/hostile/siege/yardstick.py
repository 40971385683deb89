"""A fixed piece of work, whose processor time shows how slow the machine is at this moment.

The kernel counts as processor time what the host of a virtual machine takes from it: on an idle machine a piece of 0.6 ms
took 34.7 ms. A busy neighbour, a shared core or a lower clock make everything slower, the yardstick like the broker.
"""

from __future__ import annotations

import time
from typing import Final

_LOOPS: Final = 10_000


def measure_s() -> float:
    """Processor time of the work, about 0.1 ms. It allocates nothing, so that the garbage collector has no part in it."""
    began = time.thread_time()
    for _ in range(_LOOPS):
        pass
    return time.thread_time() - began
