"""Class archives: made once for the same jars, and missed by no one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import quick_jvm
from tests.support.quick_jvm import ClassArchive
from tests.support.tool import ToolError


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setattr(quick_jvm, "_ARCHIVES", tmp_path / "archives")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "one.jar").write_bytes(b"one")
    return ClassArchive("program", tmp_path / "jars")


def _write_archive() -> None:
    """Does what a JVM with the options of a training does as it ends."""
    (option,) = [
        one
        for one in os.environ["JAVA_TOOL_OPTIONS"].split()
        if one.startswith("-XX:ArchiveClassesAtExit=")
    ]
    Path(option.partition("=")[2]).write_bytes(b"classes")


def test_a_jvm_maps_an_archive_only_once_it_was_made(archive: ClassArchive) -> None:
    """Before that it starts without, as it does with other jars than it was made of."""
    tool = archive.tool(_write_archive, "java")
    assert not tool.is_present()
    assert archive.options() == ()
    tool.prepare()
    assert tool.is_present()
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options()
    assert list(archive.path.parent.iterdir()) == [archive.path]
    (archive.jars / "two.jar").write_bytes(b"two")
    assert archive.options() == ()


def test_a_jvm_that_writes_none_leaves_none(archive: ClassArchive) -> None:
    """It is a tool that could not be prepared, and the environment is as before."""
    before = dict(os.environ)
    with pytest.raises(ToolError, match="wrote no archive"):
        archive.tool(lambda: None).prepare()
    assert archive.options() == ()
    assert dict(os.environ) == before
