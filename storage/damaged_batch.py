"""The batch at a damage: torn by a crash, or whole once and changed since.

A torn write lacks bytes. The file ends before the batch does; or, after a power failure that met a file whose length was
on disk before its data, whole sectors of it are zeros. A batch that has all its bytes and not its checksum was changed
after it had been written, and so was one with its checksum behind another length, offset or epoch, which it does not cover.

Called by `torn_tail.py`.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    compute_crc,
    read_header,
)
from echoless.storage.file_system import File

SECTOR_BYTES: Final = 512
"""The smallest unit that disks write as a whole."""


def change_since_written(file: File, position: int, *, may_lack_sectors: bool) -> str | None:
    """The proof that the batch at `position` was written as a whole; None if it may be torn.

    `may_lack_sectors`: the power may have failed, so that a part of what was not synced is zeros.
    """
    rest = file.read(position, file.size - position)
    if len(rest) < HEADER_SIZE:
        return None
    header = read_header(rest)
    if compute_crc(rest) == header.crc:
        return "the checksum is right for all bytes up to the end of the file"
    if header.batch_length < BATCH_LENGTH_MIN or header.size > len(rest):
        return None
    batch = rest[: header.size]
    if compute_crc(batch) == header.crc:
        return "its length and its checksum are right"
    if may_lack_sectors and _has_empty_sector(batch, position):
        return None
    return "all its bytes are there"


def _has_empty_sector(batch: bytes, position: int) -> bool:
    """Whether what the batch has of one of the file's sectors is zeros."""
    begin = 0
    while begin < len(batch):
        end = begin + SECTOR_BYTES - (position + begin) % SECTOR_BYTES
        if not any(batch[begin:end]):
            return True
        begin = end
    return False
