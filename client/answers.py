"""The meaning of each answer to a produce request; `docs/protocol/client-reactions.md` as a table.

Kafka's clients differ from each other; where they do, this table takes the reading that never
stores a record twice. Pure.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.produce_response import ProducedRow


class Meaning(enum.Enum):
    """The reaction to an answer, provided that the batch was the oldest and alone in flight."""

    STORED = "acknowledge it"
    REPEAT = "acknowledge it; the offset is not known"
    AGAIN = "send it again after a while"
    AGAIN_ELSEWHERE = "ask who leads, and send it there"
    OUT_OF_ORDER = "ask the leader which sequence it stored last"
    UNKNOWN_PRODUCER = "the leader has forgotten this producer, or lost its records"
    FENCED = "another producer uses a newer epoch of this id"
    TOO_LARGE = "split it, or fail it when it is a single record"
    REFUSED = "fail it"


_NONE: Final = ErrorCode.NONE
"""Read once, because reading an enum's member takes longer than a name."""
MEANINGS: Final = {
    ErrorCode.NONE: Meaning.STORED,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Meaning.REPEAT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Meaning.OUT_OF_ORDER,
    ErrorCode.UNKNOWN_PRODUCER_ID: Meaning.UNKNOWN_PRODUCER,
    ErrorCode.INVALID_PRODUCER_EPOCH: Meaning.FENCED,
    ErrorCode.MESSAGE_TOO_LARGE: Meaning.TOO_LARGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.LEADER_NOT_AVAILABLE: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.BROKER_NOT_AVAILABLE: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.REPLICA_NOT_AVAILABLE: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.NETWORK_EXCEPTION: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.KAFKA_STORAGE_ERROR: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.FENCED_LEADER_EPOCH: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.UNKNOWN_TOPIC_ID: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.INCONSISTENT_TOPIC_ID: Meaning.AGAIN_ELSEWHERE,
    ErrorCode.CORRUPT_MESSAGE: Meaning.AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: Meaning.AGAIN,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Meaning.AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Meaning.AGAIN,
    ErrorCode.NOT_COORDINATOR: Meaning.AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS: Meaning.AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Meaning.AGAIN,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Meaning.AGAIN,
}
"""Every code that is not named here is REFUSED."""

CONCURRENT_TRANSACTIONS: Final = 51
"""No Echoless broker answers it, so `ErrorCode` lacks it."""
_AGAIN_FROM_OTHERS: Final = frozenset(
    {CONCURRENT_TRANSACTIONS, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
)
"""Codes that no Echoless broker answers to a produce request; another one may, and they prove nothing about the batch."""

_REFUSED_BEFORE_APPEND: Final = frozenset(MEANINGS) - {
    ErrorCode.NONE,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
} | {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_RECORD,
}
"""Answers that prove that this request stored nothing, provided that they carry no offset."""


class PartitionProduceResponse(NamedTuple):
    """One partition of a produce response."""

    error_code: int
    """Kafka's number, whether `ErrorCode` has it or not."""
    base_offset: int = -1
    log_append_time: int = -1
    """In ms; a fresh append to a topic with create time has -1, a repeat the stored timestamp."""
    message: str = ""

    @property
    def meaning(self) -> Meaning:
        if self.error_code in _AGAIN_FROM_OTHERS:
            return Meaning.AGAIN
        return MEANINGS.get(self.error_code, Meaning.REFUSED)  # type: ignore[call-overload,no-any-return]

    @property
    def leaves_doubt(self) -> bool:
        """Whether the batch may have been stored although the answer is an error.

        NOT_LEADER_OR_FOLLOWER with an offset comes from a leader that lost its leadership while it
        waited for the commit.
        """
        return self.base_offset >= 0 or self.error_code not in _REFUSED_BEFORE_APPEND


def answer_of(row: ProducedRow) -> PartitionProduceResponse:
    """One partition of a Produce response."""
    code = row.error_code
    if code == _NONE:
        return PartitionProduceResponse(code, row.base_offset, row.log_append_time)
    name = error_name(code)
    text = row.error_message
    message = f"{name} ({text})" if text else name
    return PartitionProduceResponse(code, row.base_offset, row.log_append_time, message)


def error_name(code: int) -> str:
    """Kafka's name of the code; the number of one that kio does not know."""
    from kio.schema.errors import ErrorCode as KioErrorCode  # noqa: PLC0415  only errors need it

    try:
        return str(KioErrorCode(code).name).upper()
    except ValueError:
        return str(code)
