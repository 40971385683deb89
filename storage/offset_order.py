"""The order of offsets in a log: batches never overlap and never fall.

They need not meet: compaction leaves holes. Whatever reads or replicates a log checks this rule, and
nothing stricter within a file. From file to file segments do meet, since compaction keeps the last
batch of each, emptied if need be: nothing else tells a compacted segment from one that lost its end.

The base offset of a batch lies outside its checksum, so this rule is also what finds damage in it.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.record_batch import BatchHeader
from echoless.storage.batch_reader import PlacedBatch, PlacedHeader
from echoless.storage.file_system import CorruptLogError

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""Index entries keep offsets as i32 relative to the base offset of the segment."""


def breach(header: BatchHeader, next_offset: int, base_offset: int) -> str:
    """The reason why the batch cannot follow; empty if it can.

    `next_offset` is where the batch before it ended, `base_offset` the one of the segment.
    """
    if header.base_offset < next_offset:
        return f"base offset {header.base_offset}, though the batches before end at {next_offset}"
    if header.last_offset_delta < 0:
        return f"last offset {header.last_offset} of a batch that begins at {header.base_offset}"
    if header.last_offset - base_offset > RELATIVE_OFFSET_MAX:
        return f"offset {header.last_offset} is out of reach of the segment of offset {base_offset}"
    return ""


def check_order(
    path: str, placed: PlacedHeader | PlacedBatch, next_offset: int, base_offset: int
) -> int:
    """Returns the batch's last offset. Raises `CorruptLogError` if the batch cannot follow."""
    header = placed.header
    first, last = header.base_offset, header.base_offset + header.last_offset_delta
    if next_offset <= first <= last <= base_offset + RELATIVE_OFFSET_MAX:
        return last
    raise CorruptLogError(path, placed.position, breach(header, next_offset, base_offset))
