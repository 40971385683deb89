"""The answers to requests that waited too long for their coordinator to be loaded."""

from __future__ import annotations

from typing import Final

from echoless.coordinators.groups.answers import GroupAnswer, refusal
from echoless.coordinators.groups.requests import GroupRequest, Heartbeat, SyncGroup
from echoless.protocol.errors import ErrorCode

_CODES: Final = {
    Heartbeat: ErrorCode.NONE,
    # 14 would be fatal to the consumer of Kafka's Java client.
    SyncGroup: ErrorCode.REBALANCE_IN_PROGRESS,
}
"""Codes other than COORDINATOR_LOAD_IN_PROGRESS."""


def refusal_while_loading(request: GroupRequest) -> GroupAnswer:
    """The answer with which a client asks again, and a member stays in its group."""
    return refusal(request, _CODES.get(type(request), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
