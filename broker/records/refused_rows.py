"""The rows of a produce request that are refused because of other rows: transactions, partitions listed twice."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Final

from echoless.broker.records.in_flight import BatchesByTopic, TopicKey
from echoless.broker.records.produce import is_transactional
from echoless.protocol.errors import ErrorCode
from echoless.protocol.produce import PartitionProduced
from echoless.protocol.record_batch import Buffer, read_header

TRANSACTIONS_REFUSED: Final = PartitionProduced(
    0,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    error_message="transactions are not served; produce without a transactional id",
)

_NO_TRANSACTIONAL_ID: Final = TRANSACTIONS_REFUSED._replace(
    error_message="a transactional batch needs a transactional id in its request"
)
_SEVERAL_PRODUCERS: Final = PartitionProduced(
    0,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    error_message="the transactional batches of a request take one producer id and epoch",
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


def refused_rows(
    topics: BatchesByTopic, transactional_id: str | None, *, are_served: bool
) -> RefusedRows | None:
    """The refusals of a request of few rows; None nearly always. `are_served`: whether transactions are."""
    whole = refused_whole(topics, transactional_id, are_served=are_served)
    repeated = _listed_twice(topics)
    return RefusedRows(whole, repeated) if whole is not None or repeated else None


def refused_rows_by_steps(
    topics: BatchesByTopic, transactional_id: str | None, *, are_served: bool
) -> Generator[None, None, RefusedRows | None]:
    """Looks for the refusals of a request of many rows, one row at each step."""
    seen: set[tuple[TopicKey, int]] = set()
    repeated: set[tuple[TopicKey, int]] = set()
    producers: set[tuple[int, int]] = set()
    for topic, partitions in topics:
        for index, records in partitions:
            (repeated if (topic, index) in seen else seen).add((topic, index))
            if is_transactional(records):
                producers.add(_producer_in(records))
            yield
    whole = _whole(producers, transactional_id, are_served=are_served)
    return RefusedRows(whole, repeated) if whole is not None or repeated else None


def refused_whole(
    topics: BatchesByTopic, transactional_id: str | None, *, are_served: bool
) -> PartitionProduced | None:
    """The error of every partition: as in Kafka, one transactional batch without a transactional id is enough.

    All transactional batches of a request have one producer id and epoch.
    """
    producers = {
        _producer_in(records)
        for _, partitions in topics
        for _, records in partitions
        if is_transactional(records)
    }
    return _whole(producers, transactional_id, are_served=are_served)


def _whole(
    producers: Collection[tuple[int, int]], transactional_id: str | None, *, are_served: bool
) -> PartitionProduced | None:
    if transactional_id is not None and not are_served:
        return TRANSACTIONS_REFUSED
    if producers and transactional_id is None:
        return refused_transaction(are_served=are_served)
    return _SEVERAL_PRODUCERS if len(producers) > 1 else None


def _producer_in(records: Buffer | None) -> tuple[int, int]:
    """The producer id and epoch of a transactional batch."""
    assert records is not None
    header = read_header(records)
    return header.producer_id, header.producer_epoch


def refused_transaction(*, are_served: bool) -> PartitionProduced:
    """The error of a transactional batch in a request without a transactional id."""
    return _NO_TRANSACTIONAL_ID if are_served else TRANSACTIONS_REFUSED


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
