"""The codes with which a request is answered whose append failed: what a client is to do differs from a producer's."""

from __future__ import annotations

from typing import Final

from echoless.protocol.errors import ErrorCode

_ELSEWHERE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def group_code(code: ErrorCode) -> ErrorCode:
    """The answer to a request that changes a group, but for SyncGroup."""
    if code is ErrorCode.NONE or code in _ELSEWHERE:
        return _ELSEWHERE.get(code, code)
    if code is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_SERVER_ERROR


def sync_code(code: ErrorCode) -> ErrorCode:
    """The answer to SyncGroup: members rejoin when the assignment was not stored in time."""
    if code is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return group_code(code)


def commit_code(code: ErrorCode) -> ErrorCode:
    """The answer to OffsetCommit."""
    if code in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return code if code is ErrorCode.REQUEST_TIMED_OUT else group_code(code)
