"""Requests of a consumer group that wait: for what is being stored, or for the topics of a regular expression."""

from __future__ import annotations

from echoless.coordinators.effects import Reply
from echoless.coordinators.groups.answers import refusal
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.requests import JOINS, ConsumerHeartbeat
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.requests import GroupRequest
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode


def park(store: GroupStore, group: ConsumerGroup, reply_id: int, request: GroupRequest) -> None:
    """Let a request wait in the queue of its group."""
    group.queue[reply_id] = request
    store.parked[reply_id] = group


def park_until_resolved(
    store: GroupStore, group: ConsumerGroup, pattern: str, reply_id: int, request: GroupRequest
) -> None:
    """Let a request wait until the topics of a regular expression are known."""
    group.resolving[pattern][reply_id] = request
    store.parked[reply_id] = group


def unpark_resolved(group: ConsumerGroup, pattern: str) -> None:
    """Let those that have waited for the expression wait in the queue, as the last ones."""
    group.queue |= group.resolving.pop(pattern, {})


def unpark_all(group: ConsumerGroup) -> None:
    """Let those that wait for any expression wait in the queue."""
    for pattern in list(group.resolving):
        unpark_resolved(group, pattern)


def take(store: GroupStore, group: ConsumerGroup, reply_id: int) -> GroupRequest:
    """Take a request out of the queue."""
    del store.parked[reply_id]
    return group.queue.pop(reply_id)


def abandon(store: GroupStore, reply_id: int) -> None:
    """Drop a request that waits: its client has gone, and may have sent it again. One to leave counts."""
    group = store.parked.get(reply_id)
    if group is not None and not _leaves(group.queue.get(reply_id)):
        del store.parked[reply_id]
        group.queue.pop(reply_id, None)
        for waiting in group.resolving.values():
            waiting.pop(reply_id, None)


def refuse_queued(store: GroupStore, group: ConsumerGroup) -> Effects:
    """Refuse the requests in the queue: what they wait for may never be known."""
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return [
        Reply(reply_id, refusal(take(store, group, reply_id), code))
        for reply_id in list(group.queue)
    ]


def refuse_all(store: GroupStore, group: ConsumerGroup) -> Effects:
    """Refuse all requests that wait: what they wait for will never come."""
    unpark_all(group)
    return refuse_queued(store, group)


def _leaves(request: GroupRequest | None) -> bool:
    return isinstance(request, ConsumerHeartbeat) and request.member_epoch < JOINS
