"""Laws that every `FileSystem` keeps: the real one, and the one that loses power on command."""

from __future__ import annotations

import pytest

from echoless.storage.file_system import FileSystem, LockHeldError, StorageError


class FileSystemContract:
    """Subclasses provide `fs`, and a directory `root` that exists in it."""

    def test_appends_are_read_back_in_order(self, fs: FileSystem, root: str) -> None:
        """An append returns the position of its first byte, and several buffers are one append."""
        file = fs.open(f"{root}/a", create=True)
        assert file.append([b"one", memoryview(b"two")]) == 0
        assert file.append([b"three"]) == 6
        assert file.size == 11
        assert file.read(0, 100) == b"onetwothree"
        assert file.read(3, 3) == b"two"
        file.close()

    def test_reads_behind_the_end_are_short(self, fs: FileSystem, root: str) -> None:
        """A read returns fewer bytes than asked for only at the end of the file."""
        file = fs.open(f"{root}/a", create=True)
        file.append([b"abc"])
        assert file.read(2, 10) == b"c"
        assert file.read(3, 10) == b""
        assert file.read(9, 10) == b""
        file.close()

    def test_truncation_moves_the_end(self, fs: FileSystem, root: str) -> None:
        """After a truncation appends go to the new end."""
        file = fs.open(f"{root}/a", create=True)
        file.append([b"abcdef"])
        file.truncate(2)
        assert file.append([b"X"]) == 2
        file.sync()
        file.close()
        assert fs.read_bytes(f"{root}/a") == b"abX"

    def test_a_file_is_opened_again_as_it_was(self, fs: FileSystem, root: str) -> None:
        """Opening finds the size; a missing file is created only on request."""
        with pytest.raises(StorageError) as caught:
            fs.open(f"{root}/a")
        assert caught.value.path == f"{root}/a"
        file = fs.open(f"{root}/a", create=True)
        file.append([b"abc"])
        file.close()
        again = fs.open(f"{root}/a", create=True)
        assert again.size == 3
        again.close()

    def test_directories_list_their_names_sorted(self, fs: FileSystem, root: str) -> None:
        """Files and directories are listed by name, and can be told apart."""
        fs.make_directory(f"{root}/d/e")
        fs.make_directory(f"{root}/d/e")
        fs.open(f"{root}/b", create=True).close()
        fs.open(f"{root}/a", create=True).close()
        assert fs.list_directory(root) == ["a", "b", "d"]
        assert fs.is_directory(f"{root}/d/e")
        assert not fs.is_directory(f"{root}/a")
        assert not fs.is_directory(f"{root}/missing")
        with pytest.raises(StorageError):
            fs.list_directory(f"{root}/missing")

    def test_removing_what_is_gone_is_fine(self, fs: FileSystem, root: str) -> None:
        """Removing a missing file succeeds, so that recovery may repeat a removal."""
        fs.write_atomic(f"{root}/a", b"x")
        fs.remove(f"{root}/a")
        fs.remove(f"{root}/a")
        assert not fs.exists(f"{root}/a")
        fs.make_directory(f"{root}/d")
        fs.write_atomic(f"{root}/d/a", b"x")
        fs.remove_tree(f"{root}/d")
        fs.remove_tree(f"{root}/d")
        assert not fs.exists(f"{root}/d")

    def test_renames_replace_files_and_move_directories(self, fs: FileSystem, root: str) -> None:
        """The new name holds what the old one held; the old one is gone."""
        fs.write_atomic(f"{root}/a", b"new")
        fs.write_atomic(f"{root}/b", b"old")
        fs.rename(f"{root}/a", f"{root}/b")
        assert fs.read_bytes(f"{root}/b") == b"new"
        assert not fs.exists(f"{root}/a")
        fs.make_directory(f"{root}/d")
        fs.write_atomic(f"{root}/d/x", b"1")
        fs.rename(f"{root}/d", f"{root}/e")
        assert fs.read_bytes(f"{root}/e/x") == b"1"
        assert not fs.exists(f"{root}/d")

    def test_atomic_writes_leave_nothing_else_behind(self, fs: FileSystem, root: str) -> None:
        """The file is replaced as a whole, and no temporary file stays."""
        fs.write_atomic(f"{root}/a", b"long content")
        fs.write_atomic(f"{root}/a", b"short")
        assert fs.read_bytes(f"{root}/a") == b"short"
        assert fs.list_directory(root) == ["a"]

    def test_the_boot_id_stays_while_the_system_runs(self, fs: FileSystem, root: str) -> None:
        """It is one word, always the same."""
        assert fs.boot_id() == fs.boot_id()
        assert fs.boot_id().split() == [fs.boot_id()]

    def test_a_lock_names_its_holder(self, fs: FileSystem, root: str) -> None:
        """A second holder is refused at once, with the name of the first."""
        lock = fs.lock(f"{root}/.lock", "broker 7")
        with pytest.raises(LockHeldError) as caught:
            fs.lock(f"{root}/.lock", "broker 8")
        assert "broker 7" in caught.value.holder
        lock.release()
        fs.lock(f"{root}/.lock", "broker 8").release()
