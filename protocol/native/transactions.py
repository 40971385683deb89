"""The messages about transactions between brokers: add_or_verify to a coordinator, write_markers to a leader.

Read and built like those of `replication.py`. Both hold any number of transactions, so a broker asks another one once for
all that has gathered. A partition is named with its topic's id, so what is meant for a deleted topic never reaches its
successor; `NO_TOPIC_ID` stands for any. `docs/native.md` is the reference. Pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.native.answers import Answer
from echoless.protocol.native.codec import ENTRIES_MAX
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.replication import INT32_MAX, error_code, succeeded
from echoless.protocol.state_records.transaction_records import TransactionPartition

ADD_OR_VERIFY: Final = "add_or_verify"
WRITE_MARKERS: Final = "write_markers"
"""The types of the messages."""
TRANSACTIONS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit on the encoded transactions of one message, besides `PARTITIONS_MAX`."""
PARTITIONS_MAX: Final = ENTRIES_MAX
"""Limit on the partitions of all transactions of one message."""
NO_NUMBER: Final = -1
"""The number of a transaction that is not known."""

_INT16_MAX: Final = 2**15 - 1
_TOPIC_ID_SIZE: Final = 16

Row = TypeVar("Row", "TransactionAsk", "TransactionMarker")


class TransactionAsk(NamedTuple):
    """A leader's question about one transactional id: may its producer write to these partitions?"""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_add: bool
    """Whether the partitions are added to the transaction; else it is only looked whether they have been."""
    client_version: int
    """The generation of the protocol that the client speaks: 0, or 2 (KIP-890)."""
    partitions: tuple[TransactionPartition, ...]

    @classmethod
    def read(cls, index: int, entry: object) -> TransactionAsk:
        """Raises `DecodeError`."""
        fields = Answer(f"transaction {index}", entry)
        return cls(
            fields.text("transactional_id"),
            fields.integer("producer_id"),
            fields.integer("producer_epoch", most=_INT16_MAX),
            fields.boolean("is_add"),
            fields.integer("client_version", most=_INT16_MAX),
            _read_partitions(fields),
        )

    def to_entry(self) -> dict[str, Any]:
        return _to_entry(self)


class TransactionAnswered(NamedTuple):
    """The coordinator's answer to one `TransactionAsk`."""

    error_code: ErrorCode = ErrorCode.NONE
    """If not NONE, the answer for all partitions."""
    number: int = NO_NUMBER
    """The transaction that the partitions are in, counted by transactional id."""
    partition_codes: tuple[ErrorCode, ...] = ()
    """A code for each partition, in the order of the question; empty with an `error_code`."""

    @classmethod
    def read(cls, index: int, entry: object, asked: TransactionAsk) -> TransactionAnswered:
        """Raises `DecodeError`."""
        fields = Answer(f"transaction {index} of the answer", entry)
        code = _read_code(fields, fields.integer("error", -1, _INT16_MAX))
        if code is not ErrorCode.NONE:
            return cls(code)
        number = fields.integer("number", NO_NUMBER)
        return cls(code, number, _read_codes(fields, len(asked.partitions)))

    def to_entry(self) -> dict[str, Any]:
        return {
            "error": int(self.error_code),
            "number": self.number,
            "codes": [int(code) for code in self.partition_codes],
        }


AnsweredNowOrLater = TransactionAnswered | Awaitable[TransactionAnswered]
"""The answer of a coordinator on the same broker, or one that is still to come."""


class AddOrVerify(NamedTuple):
    """Asks the coordinator of some transactional ids whether their producers may write, or adds partitions for them."""

    broker_id: int
    """The leader that asks."""
    transactions: Sequence[TransactionAsk]

    @classmethod
    def read(cls, fields: Fields) -> AddOrVerify:
        rows = _read_rows(fields, TransactionAsk.read)
        return cls(fields.integer("broker_id", least=0), rows)

    def to_message(self) -> dict[str, Any]:
        rows = [one.to_entry() for one in self.transactions]
        return {"type": ADD_OR_VERIFY, "broker_id": self.broker_id, "transactions": rows}


def to_add_or_verify_answer(answered: Sequence[TransactionAnswered]) -> dict[str, Any]:
    """The fields of the answer, with transactions in the order of the message."""
    return {"transactions": [one.to_entry() for one in answered]}


def read_add_or_verify_answer(
    answer: Mapping[str, Any], asked: Sequence[TransactionAsk]
) -> list[TransactionAnswered]:
    """One result for each of `asked`, in that order. Raises `KafkaError`, `DecodeError`."""
    entries = succeeded(answer).array("transactions", len(asked))
    return [
        TransactionAnswered.read(index, entry, one)
        for index, (entry, one) in enumerate(zip(entries, asked, strict=True))
    ]


class TransactionMarker(NamedTuple):
    """The end of one transaction, for the partitions that one broker leads."""

    producer_id: int
    producer_epoch: int
    number: int
    """The transaction that ends: a late marker must not end the next one."""
    is_commit: bool
    state_partition: int
    """The partition of `__transaction_state` that keeps the transaction."""
    coordinator_epoch: int
    """The leader epoch of that partition, in which the coordinator was elected."""
    client_version: int
    """The generation of the protocol in which the end was asked for: 0, or 2 (KIP-890)."""
    partitions: tuple[TransactionPartition, ...]
    transactional_id: str = ""
    """The id whose transaction ends, for what is shown and for fault rules alone; empty if a tool ends it."""

    @classmethod
    def read(cls, index: int, entry: object) -> TransactionMarker:
        """Raises `DecodeError`."""
        fields = Answer(f"transaction {index}", entry)
        return cls(
            fields.integer("producer_id"),
            fields.integer("producer_epoch", most=_INT16_MAX),
            fields.integer("number"),
            fields.boolean("is_commit"),
            fields.integer("state_partition", most=INT32_MAX),
            fields.integer("coordinator_epoch", most=INT32_MAX),
            fields.integer("client_version", most=_INT16_MAX),
            _read_partitions(fields),
            fields.text("transactional_id", ""),
        )

    def to_entry(self) -> dict[str, Any]:
        return _to_entry(self)


class WriteMarkers(NamedTuple):
    """Has a leader append markers; it answers when each is committed, or refused."""

    broker_id: int
    """The coordinator that asks."""
    markers: Sequence[TransactionMarker]

    @classmethod
    def read(cls, fields: Fields) -> WriteMarkers:
        rows = _read_rows(fields, TransactionMarker.read)
        return cls(fields.integer("broker_id", least=0), rows)

    def to_message(self) -> dict[str, Any]:
        rows = [one.to_entry() for one in self.markers]
        return {"type": WRITE_MARKERS, "broker_id": self.broker_id, "transactions": rows}


MarkerCodes = Sequence[Sequence[ErrorCode]]
"""For each marker a code for each of its partitions, in the order of the message."""


def to_write_markers_answer(codes: MarkerCodes) -> dict[str, Any]:
    """The fields of the answer, with markers and partitions in the order of the message."""
    return {"transactions": [{"codes": [int(code) for code in row]} for row in codes]}


def read_write_markers_answer(
    answer: Mapping[str, Any], markers: Sequence[TransactionMarker]
) -> list[tuple[ErrorCode, ...]]:
    """The codes for each of `markers`, in that order. Raises `KafkaError`, `DecodeError`."""
    entries = succeeded(answer).array("transactions", len(markers))
    return [
        _read_codes(Answer(f"transaction {index} of the answer", entry), len(marker.partitions))
        for index, (entry, marker) in enumerate(zip(entries, markers, strict=True))
    ]


def _read_rows(fields: Fields, read: Callable[[int, object], Row]) -> list[Row]:
    entries = fields.array("transactions", TRANSACTIONS_BYTES_MAX)
    try:
        rows = [read(*numbered) for numbered in enumerate(entries)]
    except DecodeError as error:
        raise fields.complaint(str(error)) from error
    if sum(len(row.partitions) for row in rows) > PARTITIONS_MAX:
        raise fields.complaint(f"transactions hold at most {PARTITIONS_MAX} partitions together")
    return rows


def _to_entry(row: TransactionAsk | TransactionMarker) -> dict[str, Any]:
    partitions = [[topic, topic_id, index] for topic, index, topic_id in row.partitions]
    return {**row._asdict(), "partitions": partitions}


def _read_partitions(fields: Answer) -> tuple[TransactionPartition, ...]:
    entries = fields.array("partitions")
    if not all(map(_is_partition, entries)):
        raise fields.complaint("each of partitions takes [topic, topic id, partition]")
    return tuple([TransactionPartition(topic, index, id_) for topic, id_, index in entries])


def _is_partition(entry: object) -> bool:
    match entry:
        case [str(), bytes(topic_id), int(index)]:
            is_index = type(index) is int and 0 <= index <= INT32_MAX
            return is_index and len(topic_id) == _TOPIC_ID_SIZE
    return False


def _read_codes(fields: Answer, count: int) -> tuple[ErrorCode, ...]:
    return tuple([_read_code(fields, number) for number in fields.array("codes", count)])


def _read_code(fields: Answer, number: object) -> ErrorCode:
    if type(number) is not int or not -1 <= number <= _INT16_MAX:
        raise fields.complaint(f"{number!r} is no error code")
    return error_code(number)
