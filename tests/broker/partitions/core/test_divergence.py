"""The divergence of a follower's log from its leader's, against a model of two lists of epochs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.partitions.core.divergence import can_compare, cut_offset, find_divergence
from echoless.storage.leader_epochs import LeaderEpochs
from tests.fakes.memory_file_system import MemoryFileSystem


def epochs_of(log: list[int]) -> LeaderEpochs:
    """The leader epochs of a log whose batch at each offset has the given epoch."""
    fs = MemoryFileSystem()
    fs.make_directory("/log")
    epochs = LeaderEpochs(fs, "/log/leader-epoch-checkpoint")
    for offset, epoch in enumerate(log):
        epochs.assign(epoch, offset)
    return epochs


def cut_until_agreed(leader: list[int], follower: list[int]) -> list[int]:
    """The follower's log after as many rounds as it takes; each of them must change something."""
    epochs = epochs_of(follower)
    while True:
        divergence = find_divergence(
            epochs_of(leader), len(leader), len(follower), epochs.latest_epoch
        )
        if divergence is None:
            return follower
        offset = cut_offset(epochs, len(follower), divergence)
        before = len(follower), epochs.entries
        follower = follower[:offset]
        epochs.truncate_from_end(len(follower))
        assert (len(follower), epochs.entries) != before, "a round without an effect never ends"


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Two logs and the length of their common part.

    After it, no epoch is in both (one leader per epoch).
    """
    shared = sorted(draw(st.lists(st.integers(0, 4), max_size=6)))
    first = shared[-1] if shared else 0
    owners = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=6))
    logs: tuple[list[int], list[int]] = ([], [])
    # The last shared epoch may continue in one of them.
    logs[draw(st.booleans())].extend([first] * draw(st.integers(0, 3)))
    for epoch, (owner, count) in enumerate(owners, first + 1):
        logs[owner].extend([epoch] * count)
    return shared + logs[0], shared + logs[1], len(shared)


@given(two_logs())
def test_exactly_the_common_beginning_is_left(two: tuple[list[int], list[int], int]) -> None:
    """One leader per epoch: equal epochs at equal offsets are equal batches, and they all stay."""
    leader, follower, common = two
    if not leader:
        leader = [9]  # a leader has at least its own epoch
    while common < min(len(leader), len(follower)) and leader[common] == follower[common]:
        common += 1
    assert cut_until_agreed(leader, follower) == follower[:common]


def test_a_leader_without_a_record_ends_a_longer_epoch() -> None:
    """A leader epoch without a batch on the other side: the cut takes the epoch, not the records."""
    epochs = epochs_of([1, 1, 2])
    epochs.assign(4, 3)  # led here, nothing appended
    leader = epochs_of([1, 1, 2, 5])
    divergence = find_divergence(leader, 4, 3, epochs.latest_epoch)
    assert divergence == (2, 3)
    assert cut_offset(epochs, 3, divergence) == 3


def test_what_was_deleted_cannot_be_compared() -> None:
    """Below the log start the ends of epochs are unknown.

    An older follower has to start from scratch.
    """
    epochs = epochs_of([0, 0, 0, 1, 1, 2])
    assert all(can_compare(epochs, last_epoch) for last_epoch in (-1, 0, 1, 2, 3))
    epochs.truncate_from_start(4)
    assert not can_compare(epochs, 0)
    assert all(can_compare(epochs, last_epoch) for last_epoch in (-1, 1, 2, 3))
