"""A disk that is full on request, and has room again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.nemesis.small_disk import DiskError, SmallDisk

pytestmark = pytest.mark.cluster


def test_a_full_disk_takes_nothing_until_there_is_room(tmp_path: Path) -> None:
    """Data already written stays, the next page does not fit, and afterwards it does."""
    try:
        disk = SmallDisk(tmp_path / "disk")
    except DiskError as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    with disk:
        file = disk.directory / "file"
        file.write_bytes(b"x" * 100_000)
        disk.fill()
        with pytest.raises(OSError, match="No space"):
            (disk.directory / "more").write_bytes(b"y" * 100_000)
        disk.make_room()
        (disk.directory / "more").write_bytes(b"y" * 100_000)
        assert file.stat().st_size == 100_000
    assert not os.path.ismount(disk.directory)
