"""Removes the segments that retention gave up, beside the event loop, some partitions at a time.

What may go is decided before (`Log.retire_old_segments`), and a checkpoint has put the new log starts on
disk since. A partition that is deleted meanwhile has its removal cancelled by that.

Called by `broker.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from echoless.broker.partitions.disk_queue import in_thread
from echoless.broker.partitions.partition import Partition
from echoless.storage.disk_work import RunAll

Key = tuple[str, int]

PARTITIONS_AT_ONCE: Final = 200
"""Partitions that are looked at in one step of the loop, and whose files go together."""


async def remove_old_segments(
    held: Mapping[Key, Partition], keys: Iterable[Key], run_all: RunAll
) -> None:
    """Removes the segments below the log start on disk, of these partitions as far as they are held.

    Raises `StorageError`; a removal that lacked a file descriptor is tried again next time.
    """
    left = iter(keys)
    while some := list(islice(left, PARTITIONS_AT_ONCE)):
        await _remove((held[key] for key in some if key in held), run_all)
        await asyncio.sleep(0)


async def _remove(partitions: Iterable[Partition], run_all: RunAll) -> None:
    pending = [
        (partition.log, removal)
        for partition in partitions
        if (removal := partition.log.start_removal(partition.high_watermark)) is not None
    ]
    if not pending:
        return
    work = [removal.run for _, removal in pending]
    try:
        await in_thread(lambda: run_all(work))
    finally:
        for log, removal in pending:
            log.finish_removal(removal)
