"""The codes with which a request is answered whose append failed: what a client is to do differs from a producer's."""

from __future__ import annotations

from typing import Final

from echoless.coordinators.append_errors import coordinator_code
from echoless.protocol.errors import ErrorCode

_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def sync_code(code: ErrorCode) -> ErrorCode:
    """The answer to SyncGroup: members rejoin when the assignment was not stored in time."""
    if code is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return coordinator_code(code)


def commit_code(code: ErrorCode) -> ErrorCode:
    """The answer to OffsetCommit."""
    return code if code is ErrorCode.REQUEST_TIMED_OUT else transactional_commit_code(code)


def transactional_commit_code(code: ErrorCode) -> ErrorCode:
    """The answer to TxnOffsetCommit, for errors that say nothing about the producer."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code in _TOO_LARGE else coordinator_code(code)
