"""Offset checkpoints: text files of offsets by partition, as Kafka's with a checksum."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.storage.checkpoints import CheckpointError, OffsetCheckpoint
from echoless.storage.file_system import StorageError
from tests.fakes.memory_file_system import MemoryFileSystem

OFFSETS = {("payments.eu", 1): 2**63 - 1, ("orders", 1): 977, ("orders", 0): 1042}
_ENTRIES = bytes.fromhex(
    "330a"
    "6f726465727320302031303432" "0a"
    "6f72646572732031" "20393737" "0a"
    "7061796d656e74732e6575" "2031" "2039323233333732303336383534373735383037" "0a"
)  # fmt: skip
GOLDEN_0 = bytes.fromhex("300a") + _ENTRIES
"""Version 0, Kafka's: it is read, and was written until 2026."""
GOLDEN = bytes.fromhex("310a") + _ENTRIES + bytes.fromhex("637263333263" "20" "6565303036653764" "0a")  # fmt: skip
"""The encoding of `OFFSETS`; the hex of `docs/formats/checkpoints.md`."""

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
offsets = st.dictionaries(st.tuples(topics, st.integers(0, 10**6)), st.integers(0, 2**63 - 1))


PATH = "/recovery-point-offset-checkpoint"


def checkpoint_of(content: bytes) -> OffsetCheckpoint:
    """A checkpoint in a file with that content."""
    fs = MemoryFileSystem()
    fs.write_atomic(PATH, content)
    return OffsetCheckpoint(fs, PATH)


def test_golden_file() -> None:
    """The bytes are those that the format page shows."""
    fs = MemoryFileSystem()
    OffsetCheckpoint(fs, PATH).write(OFFSETS)
    assert fs.read_bytes(PATH) == GOLDEN
    assert OffsetCheckpoint(fs, PATH).read() == OFFSETS


def test_version_0_is_read() -> None:
    """A directory of an older broker, or of Kafka, keeps its offsets."""
    assert checkpoint_of(GOLDEN_0).read() == OFFSETS


def test_any_flipped_bit_is_refused() -> None:
    """A log start that is too high would delete records, a recovery point too low trusts damage."""
    for bit in range(8 * len(GOLDEN)):
        flipped = bytearray(GOLDEN)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError):
            checkpoint_of(bytes(flipped)).read()


@settings(max_examples=30, deadline=None)
@given(offsets)
def test_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    """Whatever was written is read back."""
    checkpoint = OffsetCheckpoint(MemoryFileSystem(), PATH)
    checkpoint.write(offsets)
    assert checkpoint.read() == offsets


def test_no_file_means_no_offsets() -> None:
    """A broker that starts for the first time has no checkpoints."""
    assert OffsetCheckpoint(MemoryFileSystem(), PATH).read() == {}


def test_write_replaces() -> None:
    """Partitions that are gone leave the file."""
    checkpoint = OffsetCheckpoint(MemoryFileSystem(), PATH)
    checkpoint.write(OFFSETS)
    checkpoint.write({("orders", 0): 5})
    assert checkpoint.read() == {("orders", 0): 5}


def test_cut_off_at_any_byte_is_refused() -> None:
    """Every line ends in a line feed, so a file without its end is found out at any byte."""
    for golden in (GOLDEN, GOLDEN_0):
        for size in range(len(golden)):
            cut_short = golden[:size]
            with pytest.raises(CheckpointError):
                checkpoint_of(cut_short).read()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cut off after 0"),
        (b"0\n", "cut off after 1"),
        (b"0\n0\norders", "cut off after 2"),
        (b"2\n0\n", "written by a newer version"),
        (b"-2\n0\n", "version '-2'"),
        (b"1\n0\ncrc32c 00000000\n", "it ends in 'crc32c 00000000', not 'crc32c "),
        (b"1\n0\n", "it ends in '0'"),
        (b"0\nx\n", "'x' is not a number"),
        (b"0\n2\norders 0 5\n", "promises 2 entries and has 1"),
        (b"0\n1\norders 5\n", "2 fields, not 3"),
        (b"0\n1\norders 0 5 6\n", "4 fields, not 3"),
        (b"0\n1\norders 0 -5\n", "'-5' is not a number"),
        (b"0\n1\norders 0 \xd9\xa3\n", "is not a number"),
        (b"0\n1\norders 0 \xff\n", "is not text"),
        (b"0\n2\norders 0 5\norders 0 6\n", "names orders-0 twice"),
    ],
)
def test_damage_is_named(content: bytes, reason: str) -> None:
    """A damaged file is refused with its path and what is wrong with it."""
    with pytest.raises(CheckpointError, match=f"recovery-point-offset-checkpoint: .*{reason}"):
        checkpoint_of(content).read()


def test_a_look_during_a_write_sees_what_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads no file, which would bring back old lines after the write; after one that failed nothing is known."""
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    checkpoint = OffsetCheckpoint(fs, PATH)
    checkpoint.write({("t", 0): 1})
    write_atomic, seen = fs.write_atomic, []

    def look(path: str, data: bytes, **options: bool) -> None:
        seen.append(checkpoint.get(("t", 0)))
        write_atomic(path, data, **options)

    monkeypatch.setattr(fs, "write_atomic", look)
    checkpoint.change({("t", 0): 2})
    assert (seen, checkpoint.get(("t", 0))) == ([1], 2)

    def fail(path: str, _data: bytes, **_options: bool) -> None:
        raise StorageError(path, "no space")

    monkeypatch.setattr(fs, "write_atomic", fail)
    with pytest.raises(StorageError):
        checkpoint.change({("t", 0): 3})
    assert checkpoint.get(("t", 0)) == 0
    monkeypatch.setattr(fs, "write_atomic", write_atomic)
    checkpoint.lower(("t", 0), 1)
    assert checkpoint.get(("t", 0)) == 1
