"""A producer snapshot in pieces, as a leader sends it to a replica that starts over.

The pieces are read from the snapshot's file, which never changes while it exists. If retention removes
the file in between, the replica starts again with a newer snapshot.

Called by `log.py`, which knows the offsets that a snapshot may have.
"""

from __future__ import annotations

from typing import NamedTuple

from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.log_config import LogConfig
from echoless.storage.producers.replay import load_snapshot, snapshot_offsets
from echoless.storage.producers.snapshot import encode_snapshot, write_snapshot
from echoless.storage.producers.state import ProducerStates


class SnapshotChunk(NamedTuple):
    """A piece of the encoded producer state of all batches below `offset`."""

    offset: int
    size: int
    """The size of the whole snapshot in bytes."""
    position: int
    """The position of `data` in the snapshot."""
    data: bytes


def starting_snapshot(
    fs: FileSystem, directory: str, config: LogConfig, first_offset: int, log_start_offset: int
) -> int:
    """The offset of the newest snapshot at or below the log start, with every batch after it in the log.

    If it was damaged and has been removed, one is written of the state that a restart would begin with.
    """
    offsets = snapshot_offsets(fs, directory)
    usable = [offset for offset in offsets if first_offset <= offset <= log_start_offset]
    if usable:
        return usable[-1]
    if first_offset > 0:
        producers = ProducerStates(config.window, forgotten_max=config.forgotten_max)
        load_snapshot(fs, directory, producers, first_offset)
        path = paths.offset_file(directory, first_offset, paths.SNAPSHOT)
        write_snapshot(fs, path, first_offset, producers)
    return first_offset


def read_chunk(
    fs: FileSystem, directory: str, offset: int, position: int, bytes_max: int
) -> SnapshotChunk:
    """Reads at most `bytes_max` (> 0) bytes of the snapshot of `offset`, from `position` on.

    Without a file the snapshot of offset 0 is empty: nothing is below it. Raises `KafkaError`
    OFFSET_OUT_OF_RANGE if there is no such snapshot, or no such position in it.
    """
    path = paths.offset_file(directory, offset, paths.SNAPSHOT)
    if fs.exists(path):
        size, data = _read_file(fs, path, position, bytes_max)
    elif offset == 0:
        whole = encode_snapshot(0, ProducerStates())
        size, data = len(whole), whole[max(position, 0) :][:bytes_max]
    else:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{path} is gone")
    if not 0 <= position <= size:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{path} has no position {position}")
    return SnapshotChunk(offset, size, position, data)


def _read_file(fs: FileSystem, path: str, position: int, bytes_max: int) -> tuple[int, bytes]:
    file = fs.open(path)
    try:
        return file.size, file.read(position, bytes_max) if position >= 0 else b""
    finally:
        file.close()
