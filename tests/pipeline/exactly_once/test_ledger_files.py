"""Files of the ledger are created once, whole, and refused where that cannot be promised."""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from pyarrow import fs

from echoless.pipeline.exactly_once.arrow_files import ArrowFiles
from echoless.pipeline.exactly_once.errors import LedgerError, OptionError
from echoless.pipeline.exactly_once.ledger_files import absolute_location, open_ledger_files
from echoless.pipeline.exactly_once.local_files import LocalFiles
from echoless.pipeline.exactly_once.object_store_files import ObjectStoreFiles
from echoless.pipeline.exactly_once.web_hdfs_files import WebHdfsFiles

_ROOM = "echoless.pipeline.exactly_once"


class RefusingRename(fs.FileSystemHandler):
    """A file system that renames as HDFS does: never onto a file. Only what the ledger calls."""

    def __init__(self, root: Path) -> None:
        self._local = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())
        self._renames = threading.Lock()

    def get_type_name(self) -> str:
        return "refusing-rename"

    def get_file_info(self, paths: Any) -> Any:
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._local.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._local.create_dir(path, recursive=recursive)

    def open_input_stream(self, path: str) -> Any:
        return self._local.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return self._local.open_output_stream(path)

    def delete_file(self, path: str) -> None:
        self._local.delete_file(path)

    def move(self, source: str, target: str) -> None:
        with self._renames:
            if self._local.get_file_info(target).type is not fs.FileType.NotFound:
                raise OSError(f"{target} exists")
            self._local.move(source, target)

    def _not_called(self, *_: Any) -> Any:
        raise NotImplementedError

    copy_file = delete_dir = delete_dir_contents = delete_root_dir_contents = _not_called
    normalize_path = open_append_stream = open_input_file = _not_called


def remote_files(root: Path) -> ArrowFiles:
    class System(RefusingRename):
        def normalize_path(self, path: str) -> str:
            return path

    return ArrowFiles(fs.PyFileSystem(System(root)), "")


def files_in_memory(_: Path) -> ObjectStoreFiles:
    return ObjectStoreFiles(MemoryStore(), "memory:")


@pytest.fixture(params=[LocalFiles, remote_files, files_in_memory])
def files(request: Any, tmp_path: Path) -> Any:
    """All kinds keep one contract."""
    return request.param(tmp_path)


def test_a_file_is_created_once(files):
    """The second creation returns False, and changes nothing."""
    assert files.create("a/b/entry", b"first")
    assert not files.create("a/b/entry", b"second")
    assert files.read("a/b/entry") == b"first"


def test_of_many_at_once_one_creates_the_file(files):
    """Twins that begin the same batch."""
    outcomes: list[tuple[bool, bytes]] = []

    def create(data: bytes) -> None:
        outcomes.append((files.create("a/entry", data), data))

    twins = [threading.Thread(target=create, args=(b"%d" % n,)) for n in range(16)]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    (winner,) = [data for created, data in outcomes if created]
    assert files.read("a/entry") == winner


def test_only_whole_files_are_listed(files):
    """A file being written has another name, and is removed."""
    files.create("a/two", b"2")
    files.create("a/one", b"1")
    files.create("a/one", b"again")
    assert files.list("a") == ["one", "two"]
    assert files.list("nowhere") == []
    assert (files.find("a/one"), files.find("a/none")) == (files.read("a/one"), None)


def test_deleting_twice_does_no_harm(files):
    """Another attempt may be cleaning up too."""
    files.create("a/one", b"1")
    files.delete("a/one")
    files.delete("a/one")
    assert files.list("a") == []


def test_what_cannot_be_read_is_said(files):
    """The error has the file system's words."""
    with pytest.raises(LedgerError, match="the ledger cannot be reached"):
        files.read("a/none")


def test_an_unknown_scheme_is_refused():
    """With those that are known."""
    with pytest.raises(OptionError, match=r"ftp:// is not known; .* s3a://"):
        open_ledger_files("ftp://nowhere/ledger")


def test_googles_store_has_two_names():
    """Spark's, and the one of pandas."""
    found = [open_ledger_files(f"{scheme}://bucket/ledger") for scheme in ("gs", "gcs")]
    assert repr(found[0]._store) == repr(found[1]._store)  # type: ignore[attr-defined]


def test_a_missing_extra_is_named(monkeypatch):
    """Tasks run on machines that the user has not installed by hand."""
    monkeypatch.delitem(sys.modules, f"{_ROOM}.object_store_files", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(OptionError, match=r"pip install 'echoless\[objectstore\]'"):
        open_ledger_files("s3://bucket/ledger")


def test_hdfs_without_libhdfs_is_reached_by_webhdfs(monkeypatch):
    """On the host that the URI names, and Hadoop's port, unless a setting says otherwise."""
    monkeypatch.setattr(f"{_ROOM}.repetition.REACHED_WITHIN_S", 0)
    files = open_ledger_files("hdfs://127.0.0.1:1/ledger")
    assert isinstance(files, WebHdfsFiles)
    with pytest.raises(
        LedgerError, match=r"the ledger cannot be reached: 127.0.0.1:9870/ledger: .*refused"
    ):
        files.list("a")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_named(tmp_path, monkeypatch, number):
    """Some mounted object stores, and FAT."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(LedgerError, match="this file system has no hard links"):
        LocalFiles(tmp_path).create("a", b"x")
    assert not list(tmp_path.iterdir())


def test_a_path_and_its_uris_are_one_place(tmp_path):
    """They may be written as Hadoop does, or as people do."""
    for uri in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        open_ledger_files(uri).create(f"a/{len(uri)}", b"")
    assert len(list((tmp_path / "a").iterdir())) == 3


def test_a_relative_path_is_the_drivers():
    """Tasks run in other directories."""
    assert absolute_location("ledger") == str(Path.cwd() / "ledger")
    assert absolute_location("hdfs://namenode/ledger") == "hdfs://namenode/ledger"


def test_directories_are_synced_into_their_parents(tmp_path, monkeypatch):
    """After a power cut, a file is gone with a directory that is."""
    synced: list[Path] = []
    monkeypatch.setattr(f"{_ROOM}.local_files._sync_directory", synced.append)
    LocalFiles(tmp_path).create("a/b/file", b"x")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a/b"]
