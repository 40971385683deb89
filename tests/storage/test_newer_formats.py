"""Files that a newer version has written: named as such, refused, and left as they are."""

from __future__ import annotations

import sqlite3

import msgpack
import pytest

from echoless.broker.tree import embedded
from echoless.protocol.checksum import crc32c
from echoless.storage import paths
from echoless.storage.directory_checkpoints import DirectoryCheckpoints
from echoless.storage.file_system import CorruptLogError, StorageError
from echoless.storage.producers.snapshot import read_snapshot
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.storage.one_log import DIRECTORY, OneLog

NEWER = "was written by a newer version of Echoless .*: start that version again; nothing has to be removed"


def assert_is_named(caught: pytest.ExceptionInfo[StorageError], path: str) -> None:
    """The message names the file and the remedy, and nobody is asked to remove anything."""
    assert str(caught.value).startswith(path)
    assert not isinstance(caught.value, CorruptLogError)
    assert "remove the file" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        paths.RECOVERY_POINT_CHECKPOINT,
        paths.HIGH_WATERMARK_CHECKPOINT,
        paths.LOG_START_CHECKPOINT,
        paths.CLEANER_CHECKPOINT,
    ],
)
def test_a_checkpoint_of_a_newer_version(name: str) -> None:
    """Damaged ones may be removed, at a price; a newer one has no fault."""
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    path = paths.join("/data", name)
    fs.write_atomic(path, b"7\nwhatever\n")
    with pytest.raises(StorageError, match=NEWER) as caught:
        DirectoryCheckpoints(fs, "/data").read()
    assert_is_named(caught, path)
    assert fs.read_bytes(path) == b"7\nwhatever\n"


def test_leader_epochs_of_a_newer_version() -> None:
    """They are not taken for damage, which an operator may accept as a loss."""
    one = OneLog()
    path = paths.join(DIRECTORY, paths.LEADER_EPOCH_CHECKPOINT)
    one.log.close()
    one.fs.write_atomic(path, b"7\nwhatever\n")
    with pytest.raises(StorageError, match=NEWER) as caught:
        one.open()
    assert_is_named(caught, path)


def test_a_producer_snapshot_of_a_newer_version() -> None:
    """It is kept, since what it knows may be nowhere else; a damaged one is dropped, and the log is read instead."""
    one = OneLog()
    one.append(producer_id=7)
    one.log.close()
    *_, path = (
        paths.join(DIRECTORY, name)
        for name in one.fs.list_directory(DIRECTORY)
        if name.endswith(paths.SNAPSHOT)
    )
    offset = read_snapshot(one.fs, path).offset
    header = msgpack.packb({"version": 99, "offset": offset, "window": 5, "producers": 0})
    data = header + b"\xce" + crc32c(header).to_bytes(4)  # a number of 32 bits, whatever its value
    one.fs.write_atomic(path, data)
    with pytest.raises(StorageError, match=NEWER) as caught:
        one.open(recovery_point=one.log.recovery_point, clean=True)
    assert_is_named(caught, path)
    assert one.fs.read_bytes(path) == data


def test_a_coordination_file_of_a_newer_version() -> None:
    """A file of another program is refused as such."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE node (x)")
    database.execute(f"PRAGMA application_id = {embedded._APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {embedded.FORMAT_VERSION + 1}")
    with pytest.raises(sqlite3.DatabaseError, match=NEWER):
        embedded._check_format(database)
