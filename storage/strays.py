"""Strays: logs that were set aside, because the broker should not hold them.

A broker that starts may find the log of a topic that is not known, or of another topic id, or of a
partition that should be elsewhere: deleted or moved while the broker was down, or the result of damage
or a mistake. It cannot know which, so it deletes nothing. The directory is renamed, and stays until an
operator restores or deletes it (`echoless strays`).

Setting aside, with the log closed:
1. Write `stray.properties` into the directory: the partition, the reason, and its offsets in the
   checkpoints. Crash: the log is still in its place; the file is overwritten the next time.
2. Rename the directory, durably. Crash before: as after 1.
3. The caller removes it from the checkpoints. Crash: the next start does, because the stray has the
   same offsets.

Restoring, with the broker stopped (the caller holds the lock):
1. Write `partition.metadata`, with another topic id if need be. Crash: still set aside.
2. Write the offsets from `stray.properties` into the checkpoints. Crash: still set aside, and the next
   start drops them, as after 3 above.
3. Rename the directory, durably. Crash: restored, or as after 2.
Because `stray.properties` is there, the next start scans the log from its recovery point on, even after
a clean shutdown; then it removes that file.

Called by `log_directory.py` and the command line. Times are passed in.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from echoless.storage import paths
from echoless.storage.directory_checkpoints import DirectoryCheckpoints, PartitionOffsets
from echoless.storage.file_system import FileSystem, StorageError
from echoless.storage.partition_metadata import read_topic_id, write_topic_id
from echoless.storage.properties_file import (
    PropertiesError,
    decode_uuid,
    encode_uuid,
    read_properties,
    write_properties,
)

Partition = tuple[str, int]

_SEPARATOR: Final = "="
_VERSION: Final = "0"
_NUMBERS: Final = ("partition", "set_aside_ms", "records", *PartitionOffsets._fields)


class StrayError(StorageError):
    """A log cannot be set aside or restored; the message says why."""


class Stray(NamedTuple):
    """One log set aside."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None
    """None: its `partition.metadata` cannot be read."""
    reason: str
    set_aside_ms: int
    offsets: PartitionOffsets
    """Its offsets in the checkpoints."""
    records: int
    """-1 if not known, because the log was not opened."""
    name: str = ""
    """The name of its directory."""
    size_bytes: int = 0

    @property
    def key(self) -> Partition:
        return self.topic, self.partition

    def accounts_for(self, key: Partition, offsets: PartitionOffsets) -> bool:
        """Whether the checkpoints know the partition only because a crash cut setting aside short.

        Each of the three files then has the offset of this stray, or none.
        """
        pairs = zip(offsets, self.offsets, strict=True)
        return key == self.key and all(found in {0, kept} for found, kept in pairs)


def set_aside(fs: FileSystem, data_dir: str, stray: Stray) -> Stray:
    """Does steps 1 and 2, without the sync of `data_dir`; returns the stray with its name.

    Raises `StorageError`.
    """
    path = paths.partition_directory(data_dir, *stray.key)
    unique = (stray.topic_id or uuid.UUID(int=0)).hex
    set_aside_ms = stray.set_aside_ms
    while fs.exists(new := paths.stray_directory(data_dir, *stray.key, set_aside_ms, unique)):
        set_aside_ms += 1
    properties = {
        "version": _VERSION,
        "topic": stray.topic,
        "topic_id": "" if stray.topic_id is None else encode_uuid(stray.topic_id),
        "reason": stray.reason.replace("\n", " "),
        "partition": str(stray.partition),
        "set_aside_ms": str(stray.set_aside_ms),
        "records": str(stray.records),
        **{name: str(offset) for name, offset in stray.offsets._asdict().items()},
    }
    write_properties(fs, paths.join(path, paths.STRAY_PROPERTIES), properties, _SEPARATOR)
    fs.rename(path, new)
    return stray._replace(name=paths.name_of(new), size_bytes=directory_bytes(fs, new))


def set_aside_unopened(
    fs: FileSystem, data_dir: str, key: Partition, reason: str, now_ms: int
) -> Stray:
    """Sets a closed partition aside, all steps; the caller holds the lock.

    Raises `StorageError`.
    """
    path = paths.partition_directory(data_dir, *key)
    if not fs.is_directory(path):
        raise StrayError(path, "there is no such partition")
    checkpoints = DirectoryCheckpoints(fs, data_dir)
    offsets = checkpoints.read().of(key)
    try:
        topic_id = read_topic_id(fs, path)
    except StorageError:
        topic_id = None
    stray = Stray(
        topic=key[0],
        partition=key[1],
        topic_id=topic_id,
        reason=reason,
        set_aside_ms=now_ms,
        offsets=offsets,
        records=-1,
    )
    stray = set_aside(fs, data_dir, stray)
    fs.sync_directory(data_dir)
    checkpoints.drop([key])
    return stray


def find_strays(
    fs: FileSystem, data_dir: str, on_damage: Callable[[StorageError], None]
) -> list[Stray]:
    """Finds all strays, by name; `on_damage` is called for those whose properties cannot be read."""
    found = []
    for name in fs.list_directory(data_dir):
        if paths.is_stray_directory(name):
            try:
                found.append(read_stray(fs, data_dir, name))
            except StorageError as error:
                on_damage(error)
    return found


def read_stray(fs: FileSystem, data_dir: str, name: str) -> Stray:
    """Reads the properties of one stray. Raises `StorageError`."""
    directory = paths.join(data_dir, name)
    if not (paths.is_stray_directory(name) and fs.is_directory(directory)):
        raise StrayError(directory, "there is no such stray log")
    path = paths.join(directory, paths.STRAY_PROPERTIES)
    found = read_properties(fs, path, _SEPARATOR, ("topic", "topic_id", "reason", *_NUMBERS))
    try:
        numbers = {number: int(found[number]) for number in _NUMBERS}
    except ValueError as error:
        raise PropertiesError(path, str(error)) from error
    return Stray(
        name=name,
        topic=found["topic"],
        topic_id=decode_uuid(path, found["topic_id"]) if found["topic_id"] else None,
        reason=found["reason"],
        size_bytes=directory_bytes(fs, directory),
        partition=numbers["partition"],
        set_aside_ms=numbers["set_aside_ms"],
        records=numbers["records"],
        offsets=PartitionOffsets(*(numbers[name] for name in PartitionOffsets._fields)),
    )


def restore(
    fs: FileSystem, data_dir: str, stray: Stray, *, key: Partition, topic_id: uuid.UUID
) -> None:
    """Makes the log that of `key` and `topic_id`, at the next start. Raises `StorageError`."""
    path = paths.partition_directory(data_dir, *key)
    if fs.exists(path):
        raise StrayError(path, "the partition exists")
    directory = paths.join(data_dir, stray.name)
    write_topic_id(fs, directory, topic_id)
    DirectoryCheckpoints(fs, data_dir).put(key, stray.offsets)
    fs.rename(directory, path)
    fs.sync_directory(data_dir)


def delete(fs: FileSystem, data_dir: str, stray: Stray) -> None:
    """Removes a stray for good. Raises `StorageError`."""
    fs.remove_tree(paths.join(data_dir, stray.name))
    fs.sync_directory(data_dir)


def is_restored(fs: FileSystem, directory: str) -> bool:
    """Whether the log in `directory` was set aside and restored, and has not been opened since."""
    return fs.exists(paths.join(directory, paths.STRAY_PROPERTIES))


def forget_restored(fs: FileSystem, directory: str) -> None:
    """Removes the properties: the restored log has been opened. Raises `StorageError`."""
    fs.remove(paths.join(directory, paths.STRAY_PROPERTIES))
    fs.sync_directory(directory)


def directory_bytes(fs: FileSystem, directory: str) -> int:
    """The size of the segments in a partition's directory, in bytes."""
    total = 0
    for name in fs.list_directory(directory):
        if name.endswith(paths.LOG):
            file = fs.open(paths.join(directory, name))
            total += file.size
            file.close()
    return total
