"""The `.txnindex` file of a segment: it goes with its segment, is cut with it, and is merged with its neighbours'.

The producer state at the beginning of the segment is needed to make it again from the batches, so each change is one
atomic write, and is done again after a crash:

* while the segment is appended to, it is in memory alone, and opening the log after a crash makes it again. It is written
  when the segment is closed, before the recovery point moves past it (`segment_indexes.py`);
* a cut of the log drops the entries from the cut on after the log was cut. Crash in between: recovery cuts them
  to the end of the log;
* compaction merges the files of the segments that it merges before it removes them. Crash in between: the first
  file has all entries, and merging those that are left changes nothing.

Called by `segment_indexes.py`, `recovery.py`
and `compaction/swap.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.transaction_index import ENTRY_SIZE, TransactionIndex

logger = logging.getLogger(__name__)


def read_transaction_index(fs: FileSystem, directory: str, base_offset: int) -> TransactionIndex:
    """The entries of one segment, none without a file; those before the first that cannot be one."""
    path = paths.offset_file(directory, base_offset, paths.TRANSACTION_INDEX)
    data = fs.read_bytes(path) if fs.exists(path) else b""
    index = TransactionIndex.decode_beginning(base_offset, data)
    if len(index) * ENTRY_SIZE != len(data):
        logger.error(
            "%s: the bytes from position %d to %d are no entries: aborted transactions with a marker after offset %d "
            "are not known as such",
            path,
            len(index) * ENTRY_SIZE,
            len(data),
            base_offset - 1 if index.last is None else index.last.last_offset,
        )
    return index


def cut_transaction_index(
    fs: FileSystem, directory: str, base_offset: int, end_offset: int
) -> None:
    """Drops the entries of markers at or after `end_offset`, durably."""
    path = paths.offset_file(directory, base_offset, paths.TRANSACTION_INDEX)
    if not fs.exists(path):
        return
    index = read_transaction_index(fs, directory, base_offset)
    count = len(index)
    index.truncate_to(end_offset)
    if len(index) < count:
        fs.write_atomic(path, index.encode())


def merge_transaction_indexes(
    fs: FileSystem, directory: str, base_offset: int, others: Iterable[int]
) -> None:
    """Puts the entries of the segments at `others`, rising, behind those of the first, durably.

    What it has already stays as it is.
    """
    merged = read_transaction_index(fs, directory, base_offset)
    count = len(merged)
    for other in others:
        for entry in read_transaction_index(fs, directory, other):
            if merged.last is None or entry.last_offset > merged.last.last_offset:
                merged.append(entry)
    if len(merged) > count:
        path = paths.offset_file(directory, base_offset, paths.TRANSACTION_INDEX)
        fs.write_atomic(path, merged.encode())
