"""ConsumerGroupDescribe, and what is asked of the members of a consumer group besides heartbeats."""

from __future__ import annotations

from echoless.coordinators.groups.consumer.assignment import assignor_of
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.requests import (
    ConsumerDescribe,
    ConsumerDescribeAnswer,
    DescribedConsumer,
)
from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.consumer.topics import KnownTopics
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.requests import OffsetCommit, OffsetFetch
from echoless.protocol.errors import ErrorCode


def described_consumers(group: Group | None, request: ConsumerDescribe) -> ConsumerDescribeAnswer:
    """The group with what its members have and are to have; another one is not found."""
    name = request.group_id
    if group is None or group.state is GroupState.DEAD:
        return ConsumerDescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    consumer = group.consumer
    if consumer is None:
        message = f"Group {name} is not a consumer group."
        return ConsumerDescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, message)
    state = consumer.state
    members = [
        DescribedConsumer(
            member_id,
            state.currents[member_id].epoch,
            value,
            frozenset(state.currents[member_id].assigned),
            state.targets.get(member_id, frozenset()),
        )
        for member_id, value in state.members.items()
    ]
    return ConsumerDescribeAnswer(
        ErrorCode.NONE,
        None,
        consumer.condition,
        state.number,
        state.target_epoch,
        assignor_of(consumer),
        tuple(members),
    )


def commit_error(consumer: ConsumerGroup, request: OffsetCommit) -> ErrorCode:
    """NONE if the member may commit, what it has in its present epoch at least."""
    if not consumer.has_members and request.generation_id < 0:
        return ErrorCode.NONE
    current = consumer.state.currents.get(request.member_id)
    if current is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not request.knows_missing_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    is_later = request.generation_id > current.epoch
    return ErrorCode.STALE_MEMBER_EPOCH if is_later else ErrorCode.NONE


def stale_partitions(
    consumer: ConsumerGroup, request: OffsetCommit, topics: KnownTopics
) -> list[bool]:
    """The partitions that the member may not commit: in an earlier epoch, all that it has only since a later one.

    A commit may be on its way while the epoch rises (KIP-1251).
    """
    current = consumer.state.currents.get(request.member_id)
    if current is None or request.generation_id == current.epoch:
        return [False] * len(request.partitions)
    epochs = {**current.assigned, **current.pending}
    found = []
    for one in request.partitions:
        topic = topics.find(one.topic)
        since = None if topic is None else epochs.get((topic.topic_id, one.partition))
        found.append(since is None or request.generation_id < since)
    return found


def fetch_error(state: ConsumerState | None, request: OffsetFetch) -> ErrorCode:
    """NONE if the member that asks is in the group, in this epoch; a request that names none is not checked.

    `state` is what is committed, which is all that a member knows: a read does not wait for what is being stored.
    """
    if state is None or (request.member_id is None and request.member_epoch < 0):
        return ErrorCode.NONE
    current = state.currents.get(request.member_id or "")
    if current is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_current = request.member_epoch == current.epoch
    return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH
