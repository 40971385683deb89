"""Walking the batches of a segment file: headers only, or whole batches with their CRC checked.

Headers are parsed in place in large reads; no records are decoded but those of control batches. Called by `segment.py` and
`scrub.py`. Does not check offsets (`offset_order.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from echoless.protocol.control_records import EndMarker
from echoless.protocol.errors import DecodeError
from echoless.protocol.producer_effect import marker_in
from echoless.protocol.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    compute_crc,
    read_header,
    walk,
)
from echoless.storage.file_system import CorruptLogError, File

LOOK_UP_BYTES: Final = 8 * 1024
"""One read of a look-up: an index interval and a little more."""
REPLAY_BYTES: Final = 256 * 1024
_SCAN_BYTES: Final = 4 * 1024 * 1024
_PLACE: Final = struct.Struct(">qi4xb6xi")
"""The fields of a batch header that say where the batch ends: base offset, length, magic, last delta."""


class PlacedHeader(NamedTuple):
    """A batch header and the position of its batch in the file."""

    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        return self.position + self.header.size


class PlacedBatch(NamedTuple):
    """A whole batch whose CRC matches; `batch` is valid until the next one is read."""

    position: int
    header: BatchHeader
    batch: memoryview


def locate(chunk: bytes, offset: int) -> tuple[int, int, int] | None:
    """Start, end and next offset of the first batch in `chunk` that holds `offset` or a later one.

    None if it begins after the end of `chunk`, or follows what cannot be a batch; `read_headers` finds out
    which. The end may lie after that of `chunk`.
    """
    start, last_start = 0, len(chunk) - _PLACE.size
    while start <= last_start:
        base_offset, batch_length, magic, last_delta = _PLACE.unpack_from(chunk, start)
        if magic != MAGIC or batch_length < BATCH_LENGTH_MIN:
            return None
        end = start + batch_length + LOG_OVERHEAD
        if base_offset + last_delta >= offset:
            return start, end, base_offset + last_delta + 1
        start = end
    return None


def last_end(chunk: bytes, position: int, limit: int, file_end: int, end_offset: int) -> int | None:
    """The last end of a batch, from `position` on, that is within `limit` and `end_offset`.

    None if a batch cannot be one; `read_headers` says why. All positions count from the beginning of
    `chunk`, which reaches to `limit` or to the end of the file.
    """
    while position < file_end and position + HEADER_SIZE <= limit:
        if position + HEADER_SIZE > len(chunk):
            return None
        base_offset, batch_length, magic, last_delta = _PLACE.unpack_from(chunk, position)
        end = position + batch_length + LOG_OVERHEAD
        if magic != MAGIC or batch_length < BATCH_LENGTH_MIN or end > file_end:
            return None
        if end > limit or base_offset + last_delta >= end_offset:
            break
        position = end
    return position


def read_headers(file: File, position: int, chunk_bytes: int) -> Iterator[PlacedHeader]:
    """Yields the headers of all batches from `position` (the start of one) to the end of the file.

    Raises `CorruptLogError` at an impossible header, or at a batch that the file cuts short.
    """
    chunk, chunk_start, last_start = b"", position, -1
    end = file.size
    while position < end:
        if position - chunk_start > last_start:
            chunk, chunk_start = file.read(position, chunk_bytes), position
            last_start = len(chunk) - HEADER_SIZE
        try:
            header = read_header(chunk, position - chunk_start)
        except DecodeError as error:
            raise CorruptLogError(file.path, position, str(error)) from error
        end_position = position + header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC or header.batch_length < BATCH_LENGTH_MIN or end_position > end:
            raise _corrupt(file, position, header)
        yield PlacedHeader(position, header)
        position = end_position


def _corrupt(file: File, position: int, header: BatchHeader) -> CorruptLogError:
    """The error that names what is impossible about a header."""
    if header.magic != MAGIC:
        return CorruptLogError(file.path, position, f"magic {header.magic}, not {MAGIC}")
    if header.batch_length < BATCH_LENGTH_MIN:
        return CorruptLogError(file.path, position, f"batch length {header.batch_length}")
    missing = position + header.size - file.size
    return CorruptLogError(file.path, position, f"the file lacks {missing} bytes of the batch")


def read_batches(file: File, chunk_bytes: int = _SCAN_BYTES) -> Iterator[PlacedBatch]:
    """Yields every batch of the file from the start, as long as each is whole and matches its CRC.

    Reads pieces of `chunk_bytes`, or a single batch that is larger. Raises `CorruptLogError` at the
    first batch that is damaged; its `position` is where to cut.
    """
    position = 0
    while position < file.size:
        buffer = memoryview(file.read(position, _read_size(file, position, chunk_bytes)))
        start = position
        try:
            for place, header in walk(buffer):
                position = start + place
                size = header.batch_length + LOG_OVERHEAD
                batch = buffer[place : place + size]
                if compute_crc(batch) != header.crc:
                    raise CorruptLogError(file.path, position, "the CRC does not match")
                yield PlacedBatch(position, header, batch)
                position += size
        except DecodeError as error:
            raise CorruptLogError(file.path, position, str(error)) from error
        if position == start:
            raise CorruptLogError(file.path, position, "the last batch is incomplete")


def read_stored_marker(
    file: File, position: int, header: BatchHeader, batch: Buffer
) -> EndMarker | None:
    """The marker in a batch of the file, None in most. Raises `CorruptLogError` if it cannot be read."""
    try:
        return marker_in(header, batch)
    except DecodeError as error:
        raise CorruptLogError(file.path, position, f"a control batch: {error}") from error


def _read_size(file: File, position: int, chunk_bytes: int) -> int:
    """The number of bytes to read from `position` on: a large piece, or a batch that is larger still."""
    prefix = file.read(position, HEADER_SIZE)
    if len(prefix) < HEADER_SIZE:
        return chunk_bytes
    return max(chunk_bytes, min(read_header(prefix).size, file.size - position))
