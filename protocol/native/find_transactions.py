"""The message find_transactions: a partition's leader asks coordinators which transactions of some producers have not ended.

It names producers alone, since a log knows nothing of transactional ids, so the answers of all coordinators are needed for a
"none". `docs/native.md` is the reference. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from echoless.protocol.native.answers import Answer
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.replication import INT32_MAX, succeeded

FIND_TRANSACTIONS: Final = "find_transactions"
PRODUCERS_MAX: Final = 1000
"""Limit on the producers of one message."""
_IDS_BYTES_MAX: Final = 16 * 1024


class ProducerPartition(NamedTuple):
    """A partition in a transaction of a producer that has not ended."""

    producer_id: int
    topic: str
    partition: int


class FindTransactions(NamedTuple):
    """Asks a broker for what it knows, as the coordinator that it is, about some producers."""

    broker_id: int
    """The leader that asks."""
    producer_ids: Sequence[int]

    @classmethod
    def read(cls, fields: Fields) -> FindTransactions:
        """Raises `KafkaError` INVALID_REQUEST."""
        ids = fields.array("producer_ids", _IDS_BYTES_MAX)
        if len(ids) > PRODUCERS_MAX or not all(type(one) is int and one >= 0 for one in ids):
            raise fields.complaint(f"producer_ids takes at most {PRODUCERS_MAX} producer ids")
        return cls(fields.integer("broker_id", least=0), ids)

    def to_message(self) -> dict[str, Any]:
        ids = list(self.producer_ids)
        return {"type": FIND_TRANSACTIONS, "broker_id": self.broker_id, "producer_ids": ids}


class TransactionsFound(NamedTuple):
    """A coordinator's answer."""

    state_partitions: frozenset[int]
    """The partitions of `__transaction_state` whose ids it knows completely."""
    open: frozenset[ProducerPartition]

    def to_answer(self) -> dict[str, Any]:
        return {
            "state_partitions": sorted(self.state_partitions),
            "open": [list(one) for one in sorted(self.open)],
        }


def read_transactions_found(answer: Mapping[str, Any]) -> TransactionsFound:
    """Raises `KafkaError`, `DecodeError`."""
    fields: Answer = succeeded(answer)
    indexes, rows = fields.array("state_partitions"), fields.array("open")
    if not all(type(one) is int and 0 <= one <= INT32_MAX for one in indexes):
        raise fields.complaint("state_partitions takes indexes of partitions")
    return TransactionsFound(
        frozenset(indexes), frozenset([_read_row(fields, row) for row in rows])
    )


def _read_row(fields: Answer, row: object) -> ProducerPartition:
    match row:
        case [int(producer_id), str(topic), int(partition)]:
            return ProducerPartition(producer_id, topic, partition)
    raise fields.complaint("each of open takes [producer id, topic, partition]")
