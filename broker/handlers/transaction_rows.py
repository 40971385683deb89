"""The rows and codes of requests about transactions, which all of their APIs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    NO_TOPIC_ID,
    TransactionPartition,
    TransactionStatus,
)

if TYPE_CHECKING:
    from echoless.broker.services import Services

PARTITIONS_MAX: Final = 10_000
"""Partitions that one request may name."""
EPOCH_BUMP_VERSION: Final = 2
"""The generation of the protocol in which every end of a transaction raises the epoch (KIP-890)."""
STATE_NAMES: Final = {
    TransactionStatus.EMPTY: "Empty",
    TransactionStatus.ONGOING: "Ongoing",
    TransactionStatus.PREPARE_COMMIT: "PrepareCommit",
    TransactionStatus.PREPARE_ABORT: "PrepareAbort",
    TransactionStatus.COMPLETE_COMMIT: "CompleteCommit",
    TransactionStatus.COMPLETE_ABORT: "CompleteAbort",
}


def code_of_version(
    code: ErrorCode, version: int, *, fenced_from: int, abortable_from: int = 0
) -> ErrorCode:
    """The code as a version of an API knows it: before 90 was known it was 47, before 120 it was 48."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < abortable_from:
        return ErrorCode.INVALID_TXN_STATE
    return code


def count_of(topics: Iterable[Any]) -> int:
    """The number of rows that topics with partitions have."""
    return sum([len(topic.partitions) or 1 for topic in topics])


def located(topics: Iterable[Any], services: Services) -> list[tuple[str, int, Any]]:
    """Name, index and `TransactionPartition` of each partition; None for one that does not exist."""
    known = services.registry.topics
    found: list[tuple[str, int, TransactionPartition | None]] = []
    for topic in topics:
        name = topic.name
        its = known.get(name)
        topic_id = NO_TOPIC_ID if its is None else its.topic_id.bytes  # once: it takes 0.2 us
        for index in topic.partitions:
            exists = its is not None and index in its.assignment
            place = TransactionPartition(name, index, topic_id) if exists else None
            found.append((name, index, place))
    return found


def topic_rows(
    topics: Iterable[Any], code_of: Callable[[str, int], ErrorCode]
) -> list[dict[str, Any]]:
    """The rows of AddPartitionsToTxn's answer."""
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code_of(topic.name, index)}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


def by_topic(partitions: Iterable[TransactionPartition]) -> dict[str, list[int]]:
    """The indexes of partitions by the names of their topics, both in ascending order."""
    found: dict[str, list[int]] = {}
    for topic, index, _ in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


def codes_of_all(rows: Sequence[tuple[str, int, Any]], code: ErrorCode) -> dict[Any, ErrorCode]:
    """One code for every partition."""
    return dict.fromkeys([row[:2] for row in rows], code)
