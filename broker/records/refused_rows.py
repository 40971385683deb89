"""The rows of a produce request that are refused because of other rows: transactions, partitions listed twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echoless.broker.records.in_flight import BatchesByTopic, TopicKey
from echoless.broker.records.produce import is_transactional
from echoless.protocol.errors import ErrorCode
from echoless.protocol.produce import PartitionProduced

TRANSACTIONS_REFUSED: Final = PartitionProduced(
    0,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    error_message="transactions are not served; produce without a transactional id",
)


class RefusedRows:
    """The refusals that rest on other rows of the request than the refused one."""

    def __init__(
        self, whole: PartitionProduced | None, repeated: set[tuple[TopicKey, int]]
    ) -> None:
        """`whole`: the error of every partition; `repeated`: those listed more than once."""
        self._whole = whole
        self._repeated = repeated
        self._answered: set[tuple[TopicKey, int]] = set()

    def take(self, topic: TopicKey, index: int) -> Sequence[PartitionProduced] | None:
        """The refusal of this row, none if an earlier row has answered for it; None: it is not refused."""
        key = topic, index
        if self._whole is None and key not in self._repeated:
            return None
        if key in self._answered:
            return ()
        self._answered.add(key)
        return (
            _listed_twice_error(index)
            if self._whole is None
            else self._whole._replace(partition=index),
        )


def refused_rows(topics: BatchesByTopic, transactional_id: str | None) -> RefusedRows | None:
    """The refusals of a request; None nearly always."""
    whole = TRANSACTIONS_REFUSED if is_in_transaction(topics, transactional_id) else None
    repeated = _listed_twice(topics)
    return RefusedRows(whole, repeated) if whole is not None or repeated else None


def is_in_transaction(topics: BatchesByTopic, transactional_id: str | None) -> bool:
    """Whether the request is part of a transaction, so that every partition is refused.

    A transactional batch without a transactional id is refused with the same code in Kafka.
    """
    if transactional_id is not None:
        return True
    for _, partitions in topics:
        for _, records in partitions:
            if is_transactional(records):
                return True
    return False


def _listed_twice(topics: BatchesByTopic) -> set[tuple[TopicKey, int]]:
    """The partitions that the request lists more than once; Kafka lets the last one win."""
    if len(topics) == 1:
        _, partitions = topics[0]
        if len(dict(partitions)) == len(partitions):
            return set()
    seen: set[tuple[TopicKey, int]] = set()
    repeated: set[tuple[TopicKey, int]] = set()
    for topic, partitions in topics:
        for index, _ in partitions:
            (repeated if (topic, index) in seen else seen).add((topic, index))
    return repeated


def _listed_twice_error(index: int) -> PartitionProduced:
    return PartitionProduced(
        index,
        ErrorCode.INVALID_REQUEST,
        error_message=f"partition {index} is listed twice in one request",
    )
