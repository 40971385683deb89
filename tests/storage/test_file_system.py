"""The real file system and the one in memory keep the same contract; each has its own laws."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.storage.file_system import OutOfDescriptorsError, StorageError
from echoless.storage.os_file_system import OsFileSystem
from tests.contracts.file_system import FileSystemContract
from tests.fakes.memory_file_system import (
    MemoryFileSystem,
    PowerFailure,
    keep_all,
    keep_none,
)


class TestOsFileSystem(FileSystemContract):
    """Over a temporary directory."""

    @pytest.fixture
    def fs(self) -> OsFileSystem:
        return OsFileSystem()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)

    def test_a_failed_append_is_cut_back(self, fs: OsFileSystem, root: str) -> None:
        """Bytes of an append that the disk took before it failed do not stay in the file."""
        file = fs.open(f"{root}/a", create=True)
        file.append([b"x" * 1000])
        with _file_size_limit(1500), pytest.raises(StorageError, match="cannot append"):
            file.append([b"y" * 1000])
        assert file.size == 1000
        assert fs.read_bytes(f"{root}/a") == b"x" * 1000
        assert file.append([b"z"]) == 1000
        file.close()

    def test_a_system_without_boot_ids_has_none(
        self, fs: OsFileSystem, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Empty means: whether the power failed is unknown."""
        monkeypatch.setattr("echoless.storage.os_file_system._BOOT_ID_PATH", f"{root}/missing")
        assert fs.boot_id() == ""


class _file_size_limit:  # noqa: N801 - used as a statement
    """Lets files of this process grow to `size` bytes only: a full disk without filling one."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        self._handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._limits[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)
        signal.signal(signal.SIGXFSZ, self._handler)


class TestMemoryFileSystem(FileSystemContract):
    """The fake, and what it can do that the real thing cannot be asked to."""

    @pytest.fixture
    def fs(self) -> MemoryFileSystem:
        fs = MemoryFileSystem()
        fs.make_directory("/data")
        fs.sync_directory("/")
        return fs

    @pytest.fixture
    def root(self) -> str:
        return "/data"

    def test_power_loss_drops_unsynced_bytes(self, fs: MemoryFileSystem) -> None:
        """Bytes survive once the file was synced; the rest goes, wholly or in part."""
        file = fs.open("/data/a", create=True)
        file.append([b"synced"])
        file.sync()
        fs.sync_directory("/data")
        file.append([b"lost"])
        assert fs.after_power_loss().read_bytes("/data/a") == b"synced"
        assert fs.after_power_loss(keep_all).read_bytes("/data/a") == b"syncedlost"
        torn = {
            fs.after_power_loss(lambda _count: 0, seed).read_bytes("/data/a") for seed in range(50)
        }
        assert torn == {b"syncedlost"[:size] for size in range(6, 11)}

    def test_a_kill_saves_nothing_from_a_power_failure_behind_it(
        self, fs: MemoryFileSystem
    ) -> None:
        """The successor finds the dead process's unsynced data, and can still lose it."""
        file = fs.open("/data/a", create=True)
        file.append([b"synced"])
        file.sync()
        fs.sync_directory("/data")
        file.append([b"lost"])
        fs.open("/data/new", create=True).sync()
        killed = fs.after_power_loss(keep_all)
        assert killed.read_bytes("/data/a") == b"syncedlost"
        assert killed.list_directory("/data") == ["a", "new"]
        assert killed.after_power_loss().read_bytes("/data/a") == b"synced"
        assert killed.after_power_loss().list_directory("/data") == ["a"]
        killed.open("/data/a").append([b"!"])
        assert fs.read_bytes("/data/a") == b"syncedlost"

    def test_the_boot_id_changes_when_the_power_fails(self, fs: MemoryFileSystem) -> None:
        """It does not when only a process is killed."""
        assert fs.after_power_loss(keep_all).boot_id() == fs.boot_id()
        once = fs.after_power_loss(keep_none)
        ids = [fs.boot_id(), once.boot_id(), once.after_power_loss(lambda count: count).boot_id()]
        assert len(set(ids)) == 3

    def test_power_loss_drops_unsynced_names(self, fs: MemoryFileSystem) -> None:
        """A file that was created, renamed or removed is safe once its directory was synced."""
        for name in ("kept", "removed", "renamed"):
            fs.open(f"/data/{name}", create=True).close()
        fs.sync_directory("/data")
        fs.open("/data/new", create=True).sync()
        fs.remove("/data/removed")
        fs.rename("/data/renamed", "/data/other")
        assert fs.after_power_loss(keep_none).list_directory("/data") == [
            "kept",
            "removed",
            "renamed",
        ]
        assert fs.after_power_loss(keep_all).list_directory("/data") == ["kept", "new", "other"]

    def test_power_fails_at_the_numbered_operation(self, fs: MemoryFileSystem) -> None:
        """The operation does not happen, and nothing works after it."""
        fs.lose_power_at = fs.operations + 1
        file = fs.open("/data/a", create=True)
        with pytest.raises(PowerFailure):
            file.append([b"x"])
        with pytest.raises(PowerFailure):
            fs.exists("/data/a")

    def test_a_failed_append_is_cut_back(self, fs: MemoryFileSystem) -> None:
        """A failing or full disk leaves the file at its old size."""
        file = fs.open("/data/a", create=True)
        file.append([b"abc"])
        fs.fail_at = fs.operations
        with pytest.raises(StorageError):
            file.append([b"defg"])
        assert fs.read_bytes("/data/a") == b"abc"
        fs.capacity_bytes = 5
        with pytest.raises(StorageError, match="no space left"):
            file.append([b"defg"])
        assert file.append([b"de"]) == 3

    def test_a_failed_sync_is_final(self, fs: MemoryFileSystem) -> None:
        """The kernel may have dropped the pages, so no later sync of the file succeeds."""
        file = fs.open("/data/a", create=True)
        file.append([b"abc"])
        fs.fail_at = fs.operations
        for _ in range(2):
            with pytest.raises(StorageError):
                file.sync()


def test_a_failed_sync_is_final_on_the_real_file_system(tmp_path: Path) -> None:
    """A descriptor that cannot be synced fails, and keeps failing."""
    reader, writer = os.pipe()
    file = OsFileSystem().open(str(tmp_path / "a"), create=True)
    descriptor = file._descriptor
    os.dup2(writer, descriptor)  # a pipe cannot be synced
    for _ in range(2):
        with pytest.raises(StorageError, match="sync"):
            file.sync()
    file.close()
    os.close(reader)
    os.close(writer)


def test_work_that_was_begun_finds_a_spare_descriptor(tmp_path: Path):
    """Without any descriptor left files are read, written and listed; new ones can be refused."""
    fs = OsFileSystem(spare_descriptors=3)
    fs.write_atomic(str(tmp_path / "a"), b"before")
    assert fs.can_open(1)
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(tmp_path, os.O_RDONLY)
        fs.write_atomic(str(tmp_path / "a"), b"after")
        assert fs.read_bytes(str(tmp_path / "a")) == b"after"
        assert fs.list_directory(str(tmp_path)) == ["a"]
        fs.make_directory(str(tmp_path / "d"))
        fs.remove_tree(str(tmp_path / "d"))
        files = [fs.open(str(tmp_path / name), create=True) for name in "bcd"]
        assert not fs.can_open(1)
        with pytest.raises(OutOfDescriptorsError, match="ulimit"):
            fs.open(str(tmp_path / "e"), create=True)
        for file in files:
            file.close()
        assert fs.can_open(1)
    assert fs.can_open(1)


def test_open_files_are_counted(tmp_path: Path):
    """Optional opens are refused at `files_max`, and allowed again when files are closed."""
    fs = OsFileSystem(files_max=2)
    files = [fs.open(str(tmp_path / name), create=True) for name in "ab"]
    assert fs.can_open(0)
    assert not fs.can_open(1)
    files[0].close()
    files[0].close()
    assert fs.can_open(1)
    assert not fs.can_open(2)


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Lowers the limit to what is open now; what is closed meanwhile may be opened again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
