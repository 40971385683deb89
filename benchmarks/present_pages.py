"""Pages that the machine has, before something is measured that fills the page cache.

A virtual machine gets a page from its host when it first touches it, and gives it back some time after it was freed.
Appending 1 MB to a file has been seen to take 0.2 ms of processor time on pages that were there and 2 ms on others,
16 KB 7 and 40 us, which is as much as all else that a request of 16 KB costs. Which of two brokers got which was chance.

What is not used goes back to the host within seconds, which stalls the machine: after 2 or 4 GB the p99 of a small load was above
20 ms in four of eight runs, and in none of four after nothing.
"""

from __future__ import annotations

import mmap


def take_pages(size: int) -> None:
    """Touches `size` bytes of memory and frees them: what is written next finds its pages there."""
    with mmap.mmap(-1, size) as pages:
        for position in range(0, size, mmap.PAGESIZE):
            pages[position] = 1
