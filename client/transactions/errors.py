"""Why a transaction cannot go on, or its producer."""

from __future__ import annotations

from typing import Any, Final

from echoless.client.errors import ProducerError
from echoless.protocol.errors import ErrorCode

FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Codes of a session that has a successor."""


class TransactionError(ProducerError):
    """A transaction was refused, and its producer cannot go on: close it. The message names the transactional id.

    `error_code` is the broker's; 0 if there was none.
    """

    def __init__(
        self, message: str, error_code: int = 0, *, may_be_committed: bool = False
    ) -> None:
        unknown = "; whether it was committed is not known" if may_be_committed else ""
        super().__init__(message + unknown)
        self.error_code = error_code
        self.may_be_committed = may_be_committed
        """False: the transaction is not committed, and will not be.

        True: a commit was requested, and its outcome is not known. Readers of committed records see all of it or
        nothing, and the group's offsets, if they were part of it, say which.
        """


class AbortableError(TransactionError):
    """The transaction cannot be committed. Abort it; then the producer can begin another one."""


class FencedError(TransactionError):
    """Another producer has begun a session of this transactional id, and what this one had open is aborted.

    The coordinators of Apache Kafka before 4.0 say the same when a transaction has taken too long.
    """


class UnansweredError(TransactionError):
    """No coordinator has answered in time. A commit or an abort that fails with this may be repeated, and is finished then."""


def refusal(
    transactional_id: str, what: str, code: Any, *, may_be_committed: bool = False
) -> TransactionError:
    """The error for a code of kio's with which the producer cannot go on."""
    made = FencedError if code.value in FENCED else TransactionError
    text = f"transactional id {transactional_id}: {what}: {code.name.upper()}"
    return made(text, code.value, may_be_committed=may_be_committed)
