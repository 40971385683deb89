"""The way of one member from what it has to what it is to have.

Invariant: a partition is given to a member only if no other has it; and it is no longer a member's only once that
member has said, in its present epoch, that it does not own it, or has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from echoless.protocol.state_records.consumer_group_values import (
    ConsumerMemberState,
    CurrentValue,
    TopicIdPartition,
)

Partitions = frozenset[TopicIdPartition]


def reconciled(
    current: CurrentValue,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> CurrentValue:
    """The partitions and the epoch of the member from now on.

    `owned` are the partitions that it has said it owns in its present epoch, None if it has not said so; `is_free`
    tells whether no other member has a partition.
    """
    match current.state:
        case ConsumerMemberState.STABLE if current.epoch == target_epoch:
            return current
        case ConsumerMemberState.UNREVOKED_PARTITIONS if owned is None or not owned.isdisjoint(
            current.pending
        ):
            return current
        case _:
            return _next(current, target, target_epoch, owned, is_free)


def _next(
    current: CurrentValue,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> CurrentValue:
    kept = {one: epoch for one, epoch in current.assigned.items() if one in target}
    revoked = {one: epoch for one, epoch in current.assigned.items() if one not in target}
    if revoked and (owned is None or not owned.isdisjoint(revoked)):
        return CurrentValue(
            current.epoch,
            current.previous_epoch,
            ConsumerMemberState.UNREVOKED_PARTITIONS,
            kept,
            revoked,
        )
    missing = target - kept.keys()
    given = {one: target_epoch for one in missing if is_free(one)}
    state = ConsumerMemberState.STABLE
    if len(given) < len(missing):
        state = ConsumerMemberState.UNRELEASED_PARTITIONS
    return in_epoch(current, target_epoch, state, {**kept, **given})


def in_epoch(
    current: CurrentValue,
    epoch: int,
    state: ConsumerMemberState,
    assigned: Mapping[TopicIdPartition, int],
) -> CurrentValue:
    """The member in that epoch, with nothing to revoke."""
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    return CurrentValue(epoch, previous, state, assigned, {})
