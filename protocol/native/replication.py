"""The messages between brokers: replica_fetch, replica_snapshot, await_topic, note_tree.

Each message is read on the side that answers it (`read`, from `Fields`, as in `messages.py`) and
built on the side that asks (`to_message`); each answer the other way round. Both sides are our
brokers, but neither trusts the other: reading an answer raises `KafkaError` if the peer answered
with an error, and `DecodeError` if the answer makes no sense. Checking the contents of `batches`
and `data` is up to the log.

`docs/native.md` is the reference. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.answers import INT64_MAX, Answer
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.messages import UNKNOWN_CLOCK

NEWEST_SNAPSHOT: Final = -1
"""Requests whichever snapshot the leader keeps for its first offset."""
WAIT_MS_MAX: Final = 60_000
"""Longest wait of any of these messages: the caller may have gone unnoticed."""
PARTITIONS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit on the encoded partitions of one replica_fetch, besides `codec.ENTRIES_MAX` entries."""

INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
_ERROR_CODE_MAX: Final = 2**15 - 1
_SUCCESS: Final = {"code": 0, "name": "NONE", "message": "", "retriable": False}
"""The usual `error` of an answer."""


class ReplicaWanted(NamedTuple):
    """One partition of a follower's fetch."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    """The leader epoch that it follows."""
    offset: int
    """The end of its log: it has every offset below."""
    last_epoch: int
    """The leader epoch of its last batch; -1 if it has none."""

    @classmethod
    def read(cls, index: int, entry: object) -> ReplicaWanted:
        """Raises `DecodeError`."""
        fields = Answer(f"partition {index}", entry)
        return cls(
            fields.text("topic"),
            fields.topic_id("topic_id"),
            fields.integer("partition", most=INT32_MAX),
            fields.integer("leader_epoch", most=INT32_MAX),
            fields.integer("offset"),
            fields.integer("last_epoch", -1, INT32_MAX),
        )

    def to_entry(self) -> dict[str, Any]:
        topic, topic_id, partition, leader_epoch, offset, last_epoch = self
        return {
            "topic": topic,
            "topic_id": topic_id.bytes,
            "partition": partition,
            "leader_epoch": leader_epoch,
            "offset": offset,
            "last_epoch": last_epoch,
        }


class ReplicaFetch(NamedTuple):
    """A follower's fetch of everything it is missing, for many partitions."""

    broker_id: int
    broker_epoch: int
    """The session under which the follower is registered, which is its broker epoch."""
    max_wait_ms: int
    min_bytes: int
    bytes_max: int
    """Limit on all batches together; the first one may exceed it."""
    partitions: Sequence[ReplicaWanted]

    @classmethod
    def read(cls, fields: Fields) -> ReplicaFetch:
        entries = fields.array("partitions", PARTITIONS_BYTES_MAX)
        try:
            partitions = [ReplicaWanted.read(*numbered) for numbered in enumerate(entries)]
        except DecodeError as error:
            raise fields.complaint(str(error)) from error
        return cls(
            broker_id=fields.integer("broker_id", least=0),
            broker_epoch=fields.integer("broker_epoch", least=INT64_MIN, most=INT64_MAX),
            max_wait_ms=fields.integer("max_wait_ms", 500, least=0, most=WAIT_MS_MAX),
            min_bytes=fields.integer("min_bytes", 1, least=0),
            bytes_max=fields.integer("bytes_max", 10 * 1024 * 1024, least=1),
            partitions=partitions,
        )

    def to_message(self) -> dict[str, Any]:
        return {
            "type": "replica_fetch",
            "broker_id": self.broker_id,
            "broker_epoch": self.broker_epoch,
            "max_wait_ms": self.max_wait_ms,
            "min_bytes": self.min_bytes,
            "bytes_max": self.bytes_max,
            "partitions": [wanted.to_entry() for wanted in self.partitions],
        }


class ReplicaFetched(NamedTuple):
    """The leader's answer about one partition: an error, a divergence, or batches (maybe none)."""

    error: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: tuple[int, int] | None = None
    """Set instead of batches: in the leader's log that epoch ends at that offset (-1: there is
    none).
    """
    batches: bytes = b""
    """Whole batches, as the leader stores them, starting with the one that holds the wanted offset.
    """

    @classmethod
    def read(cls, index: int, entry: object) -> ReplicaFetched:
        """Raises `DecodeError`."""
        return cls._usual(entry) or cls._by_steps(index, entry)

    @classmethod
    def _usual(cls, entry: object) -> ReplicaFetched | None:
        """The usual answer, batches, 1.2 us a row sooner than `_by_steps`; None for anything else."""
        if type(entry) is not dict or entry.get("diverging") is not None:
            return None
        error, batches = entry.get("error"), entry.get("batches")
        high_watermark, log_start_offset = (
            entry.get("high_watermark"),
            entry.get("log_start_offset"),
        )
        if (
            type(error) is type(high_watermark) is type(log_start_offset) is int
            and type(batches) is bytes
            and not error
            and 0 <= high_watermark <= INT64_MAX
            and 0 <= log_start_offset <= INT64_MAX
        ):
            return cls(ErrorCode.NONE, high_watermark, log_start_offset, None, batches)
        return None

    @classmethod
    def _by_steps(cls, index: int, entry: object) -> ReplicaFetched:
        fields = Answer(f"partition {index} of the answer", entry)
        error = error_code(fields.integer("error", -1, _ERROR_CODE_MAX))
        if error is not ErrorCode.NONE:
            return cls(error)
        diverging, batches = fields.pair("diverging", -1), fields.binary("batches")
        if diverging is not None and batches:
            raise fields.complaint("batches after a divergence")
        high_watermark = fields.integer("high_watermark")
        return cls(error, high_watermark, fields.integer("log_start_offset"), diverging, batches)

    def to_entry(self) -> dict[str, Any]:
        diverging = None if self.diverging is None else list(self.diverging)
        return {**self._asdict(), "error": int(self.error), "diverging": diverging}


def to_replica_fetch_answer(fetched: Sequence[ReplicaFetched]) -> dict[str, Any]:
    """The fields of the answer, with partitions in the order of the request."""
    return {"partitions": [one.to_entry() for one in fetched]}


def read_replica_fetch_answer(
    answer: Mapping[str, Any], wanted: Sequence[ReplicaWanted]
) -> list[ReplicaFetched]:
    """One result for each of `wanted`, in that order. Raises `KafkaError`, `DecodeError`."""
    entries = succeeded(answer).array("partitions", len(wanted))
    return [ReplicaFetched.read(*numbered) for numbered in enumerate(entries)]


@dataclass(slots=True, frozen=True, kw_only=True)
class ReplicaSnapshot:
    """Asks for a piece of the producer state with which a follower without a log has to begin."""

    broker_id: int
    topic: str
    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    offset: int
    """The offset of the snapshot that earlier pieces came from; `NEWEST_SNAPSHOT` for the first
    one.
    """
    position: int
    bytes_max: int

    @classmethod
    def read(cls, fields: Fields) -> ReplicaSnapshot:
        return cls(
            broker_id=fields.integer("broker_id", least=0),
            topic=fields.text("topic"),
            topic_id=fields.topic_id("topic_id"),
            partition=fields.integer("partition", least=0),
            leader_epoch=fields.integer("leader_epoch", least=0),
            offset=fields.integer("offset", NEWEST_SNAPSHOT, least=NEWEST_SNAPSHOT, most=INT64_MAX),
            position=fields.integer("position", 0, least=0, most=INT64_MAX),
            bytes_max=fields.integer("bytes_max", 1024 * 1024, least=1),
        )

    def to_message(self) -> dict[str, Any]:
        return {
            "type": "replica_snapshot",
            "broker_id": self.broker_id,
            "topic": self.topic,
            "topic_id": self.topic_id.bytes,
            "partition": self.partition,
            "leader_epoch": self.leader_epoch,
            "offset": self.offset,
            "position": self.position,
            "bytes_max": self.bytes_max,
        }


class SnapshotPiece(NamedTuple):
    """A part of one of the leader's producer snapshots (`docs/formats/producer-snapshot.md`)."""

    offset: int
    """The state covers all batches below; the follower's log begins here."""
    size: int
    """Bytes of the whole snapshot."""
    position: int
    data: bytes
    log_start_offset: int
    now_ms: int
    """The leader's clock, for the ages of producers."""

    def to_answer(self) -> dict[str, Any]:
        return self._asdict()


def read_replica_snapshot_answer(
    answer: Mapping[str, Any], wanted: ReplicaSnapshot
) -> SnapshotPiece:
    """The requested piece. Raises `KafkaError`, `DecodeError`."""
    fields = succeeded(answer)
    piece = SnapshotPiece(
        offset=fields.integer("offset"),
        size=fields.integer("size"),
        position=fields.integer("position"),
        data=fields.binary("data"),
        log_start_offset=fields.integer("log_start_offset"),
        now_ms=fields.integer("now_ms"),
    )
    if wanted.offset not in {piece.offset, NEWEST_SNAPSHOT} or piece.position != wanted.position:
        raise fields.complaint(
            f"position {piece.position} of snapshot {piece.offset} is not the requested piece"
        )
    end = piece.position + len(piece.data)
    if end > piece.size or (end < piece.size and not piece.data):
        raise fields.complaint(f"a piece up to {end} of a snapshot of {piece.size} bytes")
    return piece


@dataclass(slots=True, frozen=True, kw_only=True)
class AwaitTopic:
    """Asks another broker, on behalf of a topic's creator, to reply once it knows the topic."""

    topic: str
    topic_id: uuid.UUID
    timeout_ms: int

    @classmethod
    def read(cls, fields: Fields) -> AwaitTopic:
        return cls(
            topic=fields.text("topic"),
            topic_id=fields.topic_id("topic_id"),
            timeout_ms=fields.integer("timeout_ms", 5000, least=0, most=WAIT_MS_MAX),
        )

    def to_message(self) -> dict[str, Any]:
        return {
            "type": "await_topic",
            "topic": self.topic,
            "topic_id": self.topic_id.bytes,
            "timeout_ms": self.timeout_ms,
        }


def read_await_topic_answer(answer: Mapping[str, Any]) -> None:
    """Raises `KafkaError` (REQUEST_TIMED_OUT: the broker does not know it yet), `DecodeError`."""
    succeeded(answer)


@dataclass(slots=True, frozen=True, kw_only=True)
class NoteTree:
    """Asks another broker to read the newest block of producer ids from the coordinator, and to note it."""

    last_id: int
    """The last id of the block that the asking broker has claimed; it proves nothing."""

    @classmethod
    def read(cls, fields: Fields) -> NoteTree:
        return cls(last_id=fields.integer("last_id", least=-1, most=2**63 - 1))

    def to_message(self) -> dict[str, Any]:
        return {"type": "note_tree", "last_id": self.last_id}


def read_note_tree_answer(answer: Mapping[str, Any]) -> int:
    """The last id of the newest block that the other broker has noted. Raises `KafkaError`, `DecodeError`."""
    return succeeded(answer).integer("last_id", -1, 2**63 - 1)


def read_clock_of_hello(answer: Mapping[str, Any]) -> int | None:
    """The other broker's clock in ms; None if it does not say. Raises `KafkaError`, `DecodeError`."""
    fields = succeeded(answer)
    if "clock_ms" not in answer:
        return None
    clock_ms = fields.integer("clock_ms", UNKNOWN_CLOCK)
    return None if clock_ms == UNKNOWN_CLOCK else clock_ms


def read_error(answer: Mapping[str, Any]) -> KafkaError | None:
    """The error that the peer answered with; None if it succeeded. Raises `DecodeError`."""
    found = answer.get("error")
    if found == _SUCCESS and type(found["code"]) is int:
        return None
    error = Answer("the error of the answer", found)
    code = error_code(error.integer("code", -1, _ERROR_CODE_MAX))
    return None if code is ErrorCode.NONE else KafkaError(code, error.text("message"))


def error_code(number: int) -> ErrorCode:
    """The code with this number; UNKNOWN_SERVER_ERROR for codes that only newer brokers know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def succeeded(answer: Mapping[str, Any]) -> Answer:
    """The fields of an answer without an error. Raises `KafkaError`, `DecodeError`."""
    error = read_error(answer)
    if error is not None:
        raise error
    return Answer("the answer", answer)
