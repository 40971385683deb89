"""The `accepted-loss` file: an operator accepts that a partition loses what is missing or damaged.

Without the file a start that finds such damage is refused. With it the log is read from its beginning
and cut at the first damage, and the file is removed. The steps of `accept`, for a stopped broker whose
lock the caller holds:
1. Remove the boot id and the marker of a clean shutdown, durably: this broker no longer has everything,
   so in a cluster it leaves the in-sync replicas and fetches from the leader. Crash: more is scanned
   than needed.
2. Remove the recovery point from the checkpoints, or all offsets if the partition has no directory.
   Crash: run the command again.
3. Write `accepted-loss` into the partition's directory. `recovery.py` removes it when the log is open.
"""

from __future__ import annotations

from echoless.storage import paths
from echoless.storage.directory_checkpoints import DirectoryCheckpoints
from echoless.storage.file_system import CorruptLogError, FileSystem, StorageError

Partition = tuple[str, int]


def accept(fs: FileSystem, data_dir: str, key: Partition) -> None:
    """Lets the next start open the partition with what is left of it. Raises `StorageError`."""
    directory = paths.partition_directory(data_dir, *key)
    checkpoints = DirectoryCheckpoints(fs, data_dir)
    offsets = checkpoints.read().of(key)
    has_directory = fs.is_directory(directory)
    if not has_directory and not any(offsets):
        raise StorageError(directory, "there is no such partition, and none is missing")
    fs.remove(paths.join(data_dir, paths.BOOT_ID))
    fs.remove(paths.join(data_dir, paths.CLEAN_SHUTDOWN))
    fs.sync_directory(data_dir)
    if not has_directory:
        checkpoints.drop([key])
        return
    checkpoints.put(key, offsets._replace(recovery_point=0))
    fs.write_atomic(paths.join(directory, paths.ACCEPTED_LOSS), b"")


def is_accepted(fs: FileSystem, directory: str) -> bool:
    """Whether the loss of anything damaged in the log in `directory` has been accepted."""
    return fs.exists(paths.join(directory, paths.ACCEPTED_LOSS))


def withdraw(fs: FileSystem, directory: str) -> None:
    """Removes the file, once the log is open: damage is refused again. Raises `StorageError`."""
    fs.remove(paths.join(directory, paths.ACCEPTED_LOSS))
    fs.sync_directory(directory)


def with_remedy(error: CorruptLogError, directory: str) -> CorruptLogError:
    """Adds the command that accepts the loss to the error."""
    command = f"echoless accept-loss {paths.parent_of(directory)} {paths.name_of(directory)}"
    return CorruptLogError(
        error.path,
        error.position,
        f"{error.reason}. Bring a copy back; or, to go on with what is left (a replica gets the records "
        f"from its leader again), stop the broker and run: {command}",
    )
