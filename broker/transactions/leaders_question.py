"""The question of a partition's leader, `add_or_verify`, as the coordinator's core knows it, and the answer."""

from __future__ import annotations

from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.requests import AddPartitions, VerifyPartitions
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import TransactionAnswered, TransactionAsk


def request_of(ask: TransactionAsk) -> AddPartitions | VerifyPartitions:
    """The request about the transactional id. No connection of a client is known: the leader has judged it."""
    identity, partitions = (ask.producer_id, ask.producer_epoch), frozenset(ask.partitions)
    if ask.is_add:
        return AddPartitions(*identity, partitions, ask.client_version)
    return VerifyPartitions(*identity, partitions)


def answered_to_leader(ask: TransactionAsk, answer: TransactionAnswer) -> TransactionAnswered:
    """The answer with a code for each partition: TRANSACTION_ABORTABLE for one that was not added."""
    if answer.error_code is not ErrorCode.NONE:
        return TransactionAnswered(answer.error_code)
    codes = [
        ErrorCode.TRANSACTION_ABORTABLE if one in answer.abortable else ErrorCode.NONE
        for one in ask.partitions
    ]
    return TransactionAnswered(ErrorCode.NONE, answer.number, tuple(codes))
