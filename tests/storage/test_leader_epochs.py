"""The leader-epoch cache; the cases are those of Kafka's `LeaderEpochFileCache`."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.storage.checkpoints import CheckpointError
from echoless.storage.leader_epochs import LeaderEpochs
from echoless.storage.paths import parent_of
from tests.fakes.memory_file_system import MemoryFileSystem, PowerFailure

_ENTRIES = bytes.fromhex("320a3020300a3320313034320a")
GOLDEN_0 = bytes.fromhex("300a") + _ENTRIES
"""Version 0, Kafka's: it is read, and was written until 2026."""
_CHECKSUM = bytes.fromhex("6372633332632061383638626430640a")
GOLDEN = bytes.fromhex("310a") + _ENTRIES + _CHECKSUM
"""Epoch 0 from offset 0, epoch 3 from 1042; the hex of `docs/formats/leader-epoch-checkpoint.md`."""


PATH = "/leader-epoch-checkpoint"


@pytest.fixture
def fs() -> MemoryFileSystem:
    """An empty file system."""
    return MemoryFileSystem()


def open_epochs(fs: MemoryFileSystem, *entries: tuple[int, int]) -> LeaderEpochs:
    """The epochs in the file, with these assigned to them."""
    epochs = LeaderEpochs(fs, PATH)
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


def write(epochs: LeaderEpochs, end_offset: int = 10_000) -> None:
    """Writes as a flush below `end_offset` does, except for the sync of the directory."""
    entries = epochs.unwritten(end_offset)
    if entries is not None:
        epochs.write(entries)


def write_durably(fs: MemoryFileSystem, epochs: LeaderEpochs) -> None:
    write(epochs)
    fs.sync_directory(parent_of(PATH))


def test_golden_file(fs: MemoryFileSystem) -> None:
    """The bytes are those that the format page shows."""
    write(open_epochs(fs, (0, 0), (3, 1042)))
    assert fs.read_bytes(PATH) == GOLDEN
    assert open_epochs(fs).entries == ((0, 0), (3, 1042))


def test_version_0_is_read(fs: MemoryFileSystem) -> None:
    """A directory of an older broker, or of Kafka, keeps its epochs."""
    fs.write_atomic(PATH, GOLDEN_0)
    assert open_epochs(fs).entries == ((0, 0), (3, 1042))


def test_any_flipped_bit_is_refused(fs: MemoryFileSystem) -> None:
    """Replicas are cut by these offsets: a wrong one would cost committed records."""
    for bit in range(8 * len(GOLDEN)):
        flipped = bytearray(GOLDEN)
        flipped[bit // 8] ^= 1 << bit % 8
        fs.write_atomic(PATH, bytes(flipped))
        with pytest.raises(CheckpointError):
            open_epochs(fs)


@pytest.mark.parametrize("golden", [GOLDEN, GOLDEN_0])
def test_cut_off_at_any_byte_is_refused(fs: MemoryFileSystem, golden: bytes) -> None:
    """It holds for either version."""
    for size in range(len(golden)):
        fs.write_atomic(PATH, golden[:size])
        with pytest.raises(CheckpointError):
            open_epochs(fs)


def test_new_log_has_no_epoch(fs: MemoryFileSystem) -> None:
    """Without a file there is no epoch, no answer, and nothing is written."""
    epochs = open_epochs(fs)
    assert epochs.latest_epoch == -1
    assert epochs.entries == ()
    assert epochs.end_offset_for(0, 10) == (-1, -1)
    epochs.truncate_from_end(0)
    epochs.truncate_from_start(10)
    assert epochs.unwritten(10) is None


def test_what_is_assigned_waits_for_a_flush_of_its_batches(fs: MemoryFileSystem) -> None:
    """The disk is not touched before, and an epoch without batches is not written at all."""
    epochs = open_epochs(fs, (1, 10), (2, 20))
    assert not fs.exists(PATH)
    write(epochs, end_offset=20)
    assert open_epochs(fs).entries == ((1, 10),)
    assert epochs.unwritten(20) is None
    write(epochs, end_offset=21)
    assert open_epochs(fs).entries == ((1, 10), (2, 20))


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ([(2, 20), (2, 25)], [(2, 20)]),  # the same leader continues
        ([(2, 20), (2, 15)], [(2, 15)]),  # it began earlier than known
        ([(1, 10), (2, 20), (2, 10)], [(2, 10)]),  # and took the start of another
        ([(1, 10), (2, 20), (2, 5)], [(2, 5)]),
        ([(2, 20), (3, 20)], [(3, 20)]),  # a leader that appended nothing
        ([(2, 20), (4, 30), (3, 40)], [(2, 20), (3, 40)]),  # an epoch that moved back
        ([(1, 10), (3, 30), (4, 20)], [(1, 10), (4, 20)]),  # a log that became shorter
        ([(0, 0), (5, 7)], [(0, 0), (5, 7)]),  # epochs may be skipped
    ],
)
def test_assign(
    fs: MemoryFileSystem, assigned: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    """The newest assignment is right, and what contradicts it goes."""
    epochs = open_epochs(fs, *assigned)
    assert list(epochs.entries) == expected
    write(epochs)
    assert list(open_epochs(fs).entries) == expected


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),  # an epoch that never was
        (0, (0, 10)),  # older than all: its end is where the log begins to know
        (1, (1, 20)),  # ended where the next one began
        (2, (1, 20)),  # unknown between two: the one before it
        (3, (3, 30)),
        (4, (4, 100)),  # the latest has not ended
        (5, (-1, -1)),  # newer than all: this replica cannot know
    ],
)
def test_end_offset_for(fs: MemoryFileSystem, epoch: int, expected: tuple[int, int]) -> None:
    """Every epoch asked for gets the answer that Kafka gives."""
    epochs = open_epochs(fs, (1, 10), (3, 20), (4, 30))
    assert epochs.end_offset_for(epoch, 100) == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (31, [(1, 10), (3, 20), (4, 30)]),
        (30, [(1, 10), (3, 20)]),
        (20, [(1, 10)]),
        (11, [(1, 10)]),
        (10, []),
        (0, []),
    ],
)
def test_truncate_from_end(
    fs: MemoryFileSystem, offset: int, expected: list[tuple[int, int]]
) -> None:
    """An epoch that begins at or after the new end of the log never was."""
    epochs = open_epochs(fs, (1, 10), (3, 20), (4, 30))
    epochs.truncate_from_end(offset)
    assert list(epochs.entries) == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (9, [(1, 10), (3, 20), (4, 30)]),
        (10, [(1, 10), (3, 20), (4, 30)]),
        (15, [(1, 15), (3, 20), (4, 30)]),
        (20, [(3, 20), (4, 30)]),
        (29, [(3, 29), (4, 30)]),
        (99, [(4, 99)]),
    ],
)
def test_truncate_from_start(
    fs: MemoryFileSystem, offset: int, expected: list[tuple[int, int]]
) -> None:
    """The epoch that holds the new start of the log begins there; older ones are gone."""
    epochs = open_epochs(fs, (1, 10), (3, 20), (4, 30))
    epochs.truncate_from_start(offset)
    assert list(epochs.entries) == expected


@pytest.mark.parametrize("survival", [0, 1, 2, 100])
def test_power_failure_leaves_old_or_new(survival: int) -> None:
    """Whenever the power fails while an epoch is written, the file is whole: without it or with it."""
    for operation in itertools.count():
        fs = MemoryFileSystem()
        epochs = open_epochs(fs, (1, 10))
        write_durably(fs, epochs)
        epochs.assign(2, 20)
        fs.lose_power_at = fs.operations + operation
        try:
            write_durably(fs, epochs)
        except PowerFailure:
            survivor = fs.after_power_loss(lambda count: min(count, survival))
            assert open_epochs(survivor).entries in [((1, 10),), ((1, 10), (2, 20))]
        else:
            assert open_epochs(fs.after_power_loss()).entries == ((1, 10), (2, 20))
            return


def test_truncations_are_written_by_the_next_flush(fs: MemoryFileSystem) -> None:
    """Until then a crash undoes a truncation, and opening the log repeats it."""
    write(open_epochs(fs, (1, 10), (3, 20), (4, 30)))
    epochs = open_epochs(fs)
    epochs.truncate_from_end(30)
    epochs.truncate_from_start(15)
    assert open_epochs(fs).entries == ((1, 10), (3, 20), (4, 30))
    write(epochs)
    assert open_epochs(fs).entries == ((1, 15), (3, 20))


def test_only_what_changed_is_written(fs: MemoryFileSystem) -> None:
    """Without a change the file is left alone, at a flush as at every append of the same leader."""
    write(open_epochs(fs, (1, 10)))
    epochs = open_epochs(fs)
    epochs.assign(1, 10)
    epochs.truncate_from_end(11)
    assert epochs.unwritten(100) is None


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ase"), st.integers(0, 9), st.integers(0, 60)), max_size=30)
)
def test_epochs_and_offsets_always_grow(
    steps: list[tuple[str, int, int]],
) -> None:
    """Whatever is assigned and cut, both columns grow, and answers never lie beyond the log."""
    epochs = open_epochs(MemoryFileSystem())
    for kind, epoch, offset in steps:
        if kind == "a":
            epochs.assign(epoch, offset)
            assert epochs.latest_epoch == epoch
        elif kind == "s":
            epochs.truncate_from_start(offset)
        else:
            epochs.truncate_from_end(offset)
        pairs = list(zip(epochs.entries, epochs.entries[1:], strict=False))
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairs)
        answered, end_offset = epochs.end_offset_for(epoch, 100)
        assert answered <= epoch
        assert end_offset <= 100


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"0\n1\n1 2 3\n", "3 fields, not 2"),
        (b"0\n1\n-1 2\n", "'-1' is not a number"),
        (b"0\n2\n1 10\n1 20\n", "does not follow"),
        (b"0\n2\n1 10\n2 10\n", "does not follow"),
        (b"7\n0\n", "newer version .*its format is 7"),
    ],
)
def test_damage_is_named(fs: MemoryFileSystem, content: bytes, reason: str) -> None:
    """A damaged file is refused with its path and what is wrong with it."""
    fs.write_atomic(PATH, content)
    with pytest.raises(CheckpointError, match=f"leader-epoch-checkpoint: .*{reason}"):
        open_epochs(fs)
