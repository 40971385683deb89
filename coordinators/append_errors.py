"""The code with which a request is answered whose append failed: what a client is to do differs from a producer's."""

from __future__ import annotations

from typing import Final

from echoless.protocol.errors import ErrorCode

_ELSEWHERE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NONE: ErrorCode.NONE,
}


def coordinator_code(code: ErrorCode) -> ErrorCode:
    """The answer to a request that changes what a coordinator keeps."""
    return _ELSEWHERE.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
