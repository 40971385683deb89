"""The one door for ids of groups: what is refused here reaches no coordinator, and waits for none.

The shell asks before it looks for the coordinator, which takes every id that it is given.
"""

from __future__ import annotations

from typing import Final

from echoless.coordinators.groups.consumer.requests import ConsumerDescribe
from echoless.coordinators.groups.requests import (
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetDelete,
    SyncGroup,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.partitioner import NAME_LENGTH_MAX

_NEED_NAME: Final = (JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetDelete, ConsumerDescribe)
"""Others may concern the group without a name, which Kafka keeps for old data."""


def group_id_error(request: GroupRequest) -> ErrorCode:
    """INVALID_GROUP_ID if no coordinator may be asked, else NONE."""
    length = len(request.group_id)
    if 0 < length <= NAME_LENGTH_MAX:
        return ErrorCode.NONE
    if length or isinstance(request, _NEED_NAME):
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE
