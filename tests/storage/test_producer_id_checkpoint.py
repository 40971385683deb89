"""The file that proves how many producer ids were claimed."""

from __future__ import annotations

import pytest

from echoless.storage.producer_id_checkpoint import (
    NO_ID,
    read_last_claimed_id,
    write_last_claimed_id,
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


@pytest.mark.parametrize("last_id", [0, 999, 2**63 - 1])
def test_what_was_written_is_read_also_after_a_power_failure(
    fs: MemoryFileSystem, last_id: int
) -> None:
    """The first id of the block is handed out right after the write."""
    fs.sync_directory("/")
    write_last_claimed_id(fs, "/data", last_id)
    assert fs.read_bytes(PATH).startswith(b"version=0\nlast_claimed_id=%d\ncrc32c=" % last_id)
    assert read_last_claimed_id(fs.after_power_loss(), "/data") == last_id


def test_a_directory_from_which_nothing_was_claimed_proves_nothing(fs: MemoryFileSystem) -> None:
    """A new one, or one of an older version."""
    assert read_last_claimed_id(fs, "/data") == NO_ID


@pytest.mark.parametrize("text", ["", "-1", "x", str(2**63), "1_0"])
def test_damage_is_refused(fs: MemoryFileSystem, text: str) -> None:
    """It could hide an old coordinator."""
    fs.write_atomic(PATH, f"version=0\nlast_claimed_id={text}\n".encode())
    with pytest.raises(PropertiesError, match="producer-id-checkpoint"):
        read_last_claimed_id(fs, "/data")
