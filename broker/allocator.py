"""The C library's allocator in a broker: it keeps the memory of a large request for the next one.

glibc gives freed memory back to the kernel above a bound that it learns: twice the largest block that it had mapped by
itself. With frames of 1 MB that was reached by every request, and the kernel filled 100 to 500 pages with zeros for the
next one: half the processor time of a fetch of 1 MB.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.framing import HUGE_FRAME_SIZE

KEPT_BLOCK_BYTES: Final = HUGE_FRAME_SIZE
"""Smaller blocks stay in the heap, of which at most twice as much is left free at its end."""


def keep_freed_memory() -> None:
    """Makes glibc keep blocks of up to `KEPT_BLOCK_BYTES`; changes nothing with another C library.

    It learns from a block that is taken, without touching its pages, and given back (M_MMAP_THRESHOLD in mallopt(3));
    to call mallopt, ctypes would have to be imported.
    """
    bytes(KEPT_BLOCK_BYTES)
