"""The file that proves how many producer ids were claimed."""

from __future__ import annotations

import pytest

from echoless.storage.producer_id_checkpoint import (
    SeenCounts,
    read_seen_counts,
    write_seen_counts,
)
from echoless.storage.properties_file import PropertiesError
from tests.fakes.memory_file_system import MemoryFileSystem

PATH = "/data/producer-id-checkpoint"


@pytest.fixture
def fs() -> MemoryFileSystem:
    """A disk with an empty data directory."""
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    return disk


@pytest.mark.parametrize("mark", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("last_id", [0, 999, 2**63 - 1])
def test_what_was_written_is_read_also_after_a_power_failure(
    fs: MemoryFileSystem, last_id: int, mark: int
) -> None:
    """The first id of the block is handed out right after the write; a broker without a mark writes what it did."""
    fs.sync_directory("/")
    write_seen_counts(fs, "/data", SeenCounts(last_id, mark))
    line = b"mark=%d\n" % mark if mark else b""
    assert fs.read_bytes(PATH).startswith(
        b"version=0\nlast_claimed_id=%d\n%bcrc32c=" % (last_id, line)
    )
    assert read_seen_counts(fs.after_power_loss(), "/data") == (last_id, mark)


def test_a_directory_from_which_nothing_was_claimed_proves_nothing(fs: MemoryFileSystem) -> None:
    """A new one, or one of an older version."""
    assert read_seen_counts(fs, "/data") == SeenCounts()


@pytest.mark.parametrize("lines", ["last_claimed_id={}", "last_claimed_id=7\nmark={}"])
@pytest.mark.parametrize("text", ["", "-1", "x", str(2**63), "1_0"])
def test_damage_is_refused(fs: MemoryFileSystem, lines: str, text: str) -> None:
    """It could hide an old coordinator."""
    fs.write_atomic(PATH, f"version=0\n{lines.format(text)}\n".encode())
    with pytest.raises(PropertiesError, match="producer-id-checkpoint"):
        read_seen_counts(fs, "/data")
