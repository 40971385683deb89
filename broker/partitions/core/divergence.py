"""The point where two logs diverge, found by leader epochs (never by high watermarks: KIP-101).

With each fetch a follower sends its log end offset and the epoch of its last batch. If the leader's
own log ends that epoch elsewhere, it answers with that end instead of data. The follower truncates
there and fetches again, until the two agree. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from echoless.storage.leader_epochs import NO_EPOCH, LeaderEpochs


class Divergence(NamedTuple):
    """In the leader's log, `epoch` ends at `end_offset` (exclusive)."""

    epoch: int
    end_offset: int


def can_compare(epochs: LeaderEpochs, last_epoch: int) -> bool:
    """Whether the leader still knows where an epoch as old as the follower's last one ended.

    Entries go with the segments. A follower whose last batch is older than all that is left may
    hold other batches below the first one that is left, and know other producers by them: only
    starting afresh makes it equal.
    """
    first = next(iter(epochs.entries), None)
    return (
        first is None
        or last_epoch == NO_EPOCH
        or last_epoch >= first.epoch
        or (first.start_offset == 0)
    )


def find_divergence(
    epochs: LeaderEpochs, log_end_offset: int, offset: int, last_epoch: int
) -> Divergence | None:
    """The leader's view of a follower whose log ends at `offset` with a batch of `last_epoch`.

    None if the follower's log is a prefix of this one, as far as epochs can tell.
    """
    if last_epoch == NO_EPOCH:
        return None
    if last_epoch > epochs.latest_epoch:
        return Divergence(epochs.latest_epoch, log_end_offset)
    epoch, end_offset = epochs.end_offset_for(last_epoch, log_end_offset)
    if epoch < last_epoch or end_offset < offset:
        return Divergence(epoch, end_offset)
    return None


def cut_offset(epochs: LeaderEpochs, log_end_offset: int, divergence: Divergence) -> int:
    """The end of the follower's log before it asks again: at most where both have the epoch."""
    if divergence.epoch == NO_EPOCH:
        return 0
    _, own_end = epochs.end_offset_for(divergence.epoch, log_end_offset)
    return min(own_end, divergence.end_offset, log_end_offset)
