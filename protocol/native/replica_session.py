"""A follower's fetch by difference: `replica_fetch` with a session.

The leader keeps what the follower has said of each partition, a row of the session; a message names the rows of which the follower
has something new to say, and the answer holds those of which the leader has. Rows are known by the numbers that the
follower gives them: one for each partition and leader epoch that it follows, never given twice.

A message is also a fetch without a session, as leaders of earlier releases read it: they know the fields of
`ReplicaFetch`, and their answer, the rows in the order of the message, has no `session`. A leader that knows
sessions repeats the session's number in its answer. `docs/native.md` is the reference. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.native.answers import INT64_MAX, Answer
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.replication import (
    INT64_MIN,
    PARTITIONS_BYTES_MAX,
    WAIT_MS_MAX,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaWanted,
    succeeded,
)

SESSION: Final = "session"
"""The field that only a fetch with a session has, and only the answer to one."""
NAMED_MAX: Final = 300
"""Limit on the rows that one message names: a session is opened in pieces, each of which is read in one go."""
FORGOTTEN_MAX: Final = 5_000
"""Limit on the rows that one message forgets."""


class NamedRow(NamedTuple):
    """A row of which the follower has something new to say."""

    number: int
    wanted: ReplicaWanted

    @classmethod
    def read(cls, index: int, entry: object) -> NamedRow:
        """Raises `DecodeError`."""
        number = Answer(f"partition {index}", entry).integer("number")
        return cls(number, ReplicaWanted.read(index, entry))

    def to_entry(self) -> dict[str, Any]:
        return {**self.wanted.to_entry(), "number": self.number}


class SessionFetch(NamedTuple):
    """One message of a session; the first one, with epoch 0, opens it."""

    broker_id: int
    broker_epoch: int
    max_wait_ms: int
    bytes_max: int
    session: int
    """The number of the session: each is higher than those that the follower opened before in its broker epoch."""
    session_epoch: int
    """The number of messages that were sent in the session before."""
    named: Sequence[NamedRow]
    forgotten: Sequence[int] = ()
    """The numbers of rows that the follower no longer follows."""

    @property
    def key(self) -> tuple[int, int]:
        """Broker epoch and number: no other session of the broker ever has the same."""
        return self.broker_epoch, self.session

    @property
    def partitions(self) -> list[ReplicaWanted]:
        """The partitions that are named, for the rules of faults."""
        return [row.wanted for row in self.named]

    @classmethod
    def read(cls, fields: Fields) -> SessionFetch:
        named = fields.array("partitions", PARTITIONS_BYTES_MAX)
        forgotten = fields.array("forgotten", PARTITIONS_BYTES_MAX)
        if len(named) > NAMED_MAX or len(forgotten) > FORGOTTEN_MAX:
            raise fields.complaint(
                f"{len(named)} partitions and {len(forgotten)} forgotten ones; a message of a session has at most "
                f"{NAMED_MAX} and {FORGOTTEN_MAX}"
            )
        if not all(type(one) is int for one in forgotten):
            raise fields.complaint("forgotten takes numbers of rows")
        try:
            rows = [NamedRow.read(*numbered) for numbered in enumerate(named)]
        except DecodeError as error:
            raise fields.complaint(str(error)) from error
        return cls(
            broker_id=fields.integer("broker_id", least=0),
            broker_epoch=fields.integer("broker_epoch", least=INT64_MIN, most=INT64_MAX),
            max_wait_ms=fields.integer("max_wait_ms", 500, least=0, most=WAIT_MS_MAX),
            bytes_max=fields.integer("bytes_max", 10 * 1024 * 1024, least=1),
            session=fields.integer(SESSION, least=1, most=INT64_MAX),
            session_epoch=fields.integer("session_epoch", least=0, most=INT64_MAX),
            named=rows,
            forgotten=forgotten,
        )

    def to_message(self) -> dict[str, Any]:
        return {
            "type": "replica_fetch",
            "broker_id": self.broker_id,
            "broker_epoch": self.broker_epoch,
            "max_wait_ms": self.max_wait_ms,
            "bytes_max": self.bytes_max,
            SESSION: self.session,
            "session_epoch": self.session_epoch,
            "partitions": [row.to_entry() for row in self.named],
            "forgotten": list(self.forgotten),
        }


def read_replica_fetch(fields: Fields) -> ReplicaFetch | SessionFetch:
    """A fetch with or without a session."""
    return SessionFetch.read(fields) if SESSION in fields else ReplicaFetch.read(fields)


class FetchedRow(NamedTuple):
    """The leader's news of a row."""

    number: int
    fetched: ReplicaFetched


def to_session_answer(session: int, rows: Sequence[FetchedRow]) -> dict[str, Any]:
    """The fields of the answer."""
    return {
        SESSION: session,
        "partitions": [{"number": number, **found.to_entry()} for number, found in rows],
    }


def read_session_answer(answer: Mapping[str, Any], session: int) -> list[FetchedRow] | None:
    """The rows; None if the leader knows no sessions. Raises `KafkaError`, `DecodeError`."""
    fields = succeeded(answer)
    if SESSION not in answer:
        return None
    found = fields.integer(SESSION)
    if found != session:
        raise fields.complaint(f"session {found}, not {session}")
    rows = []
    for index, entry in enumerate(fields.array("partitions")):
        number = Answer(f"partition {index} of the answer", entry).integer("number")
        rows.append(FetchedRow(number, ReplicaFetched.read(index, entry)))
    return rows


@dataclass(slots=True, frozen=True)
class ReplicaWake:
    """Asks the leader to answer the session's fetch now: the follower has something to say."""

    broker_id: int
    session: int

    @classmethod
    def read(cls, fields: Fields) -> ReplicaWake:
        return cls(
            fields.integer("broker_id", least=0), fields.integer(SESSION, least=1, most=INT64_MAX)
        )

    def to_message(self) -> dict[str, Any]:
        return {"type": "replica_wake", "broker_id": self.broker_id, SESSION: self.session}
