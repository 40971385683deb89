"""The answer to a native message, framed: its head, the error, and the fields of its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Final

from echoless.broker.native.acknowledged import encode_acknowledged
from echoless.broker.native.failure import SUCCESS, failure
from echoless.broker.network.answers import Buffers
from echoless.broker.network.request import NoResponse
from echoless.protocol.errors import KafkaError
from echoless.protocol.framing import frame_length
from echoless.protocol.native.codec import encode_message, encode_message_in_buffers
from echoless.protocol.native.replica_fetch_answer import ReplicaFetchAnswer, SessionAnswer
from echoless.protocol.produce import PartitionProduced

AnswerFields = (
    Mapping[str, Any] | PartitionProduced | ReplicaFetchAnswer | SessionAnswer | NoResponse
)
"""The answer of a handler: fields by their names, the row of a batch that is stored, or the rows of a follower's fetch."""
_WITH_BATCHES: Final = frozenset({"fetch"})
"""Messages whose answers carry batches as they are stored."""


async def framed_soon(head: Mapping[str, Any], error: KafkaError) -> Buffers | None:
    """The error as an answer that is awaited."""
    return framed(head, failure(error))


async def framed_later(head: Mapping[str, Any], outcome: Awaitable[AnswerFields]) -> Buffers | None:
    """The answer when it has come."""
    try:
        return framed(head, await outcome)
    except KafkaError as error:
        return framed(head, failure(error))


def framed(head: Mapping[str, Any], answer: AnswerFields) -> Buffers | None:
    """The answer to the message of this head."""
    if isinstance(answer, NoResponse):
        return None
    if isinstance(answer, PartitionProduced):
        return (encode_acknowledged(head["correlation_id"], answer),)
    if isinstance(answer, ReplicaFetchAnswer | SessionAnswer):
        packed = answer.packed(head["correlation_id"])
        return (frame_length(sum(map(len, packed))), *packed)
    fields = {**head, **SUCCESS, **answer}
    if head["type"] in _WITH_BATCHES:
        buffers = encode_message_in_buffers(fields)
        return (frame_length(sum(map(len, buffers))), *buffers)
    body = encode_message(fields)
    return (frame_length(len(body)), body)
