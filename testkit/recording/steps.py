"""The steps of producers in a recording, in order: batches, and the sessions and ends of transactions.

A batch that no broker has decided about (its partition had moved, or a fault kept it away) is left out: the
same batch was sent again. Pure: events in, steps out.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from echoless.diagram.lives import with_lives

Event = Mapping[str, Any]
_Key = tuple[int, int, int, int]
"""Broker id, the broker's life, connection id, correlation id: one request."""
_NO_PRODUCER_ID: Final = -1
_RAISES_EPOCH_FROM: Final = 5
"""The version of EndTxn."""
_ENDS: Final = frozenset({"commit", "abort"})
_OUTCOMES: Final[Mapping[str, str]] = {"divergent_duplicate": "duplicate"}


class PlayableBatch(NamedTuple):
    """One batch, as its client has sent it."""

    time_ms: int
    topic: str
    partition: int
    transactional_id: str | None
    fields: Event
    """The fields of its header, by the names of the file."""
    records: bytes | None
    """The bytes behind the header; None if the recording has none."""
    outcome: str | None
    """`append`, `duplicate` or the name of an error; None if it has no producer id: brokers do not decide then."""

    @property
    def producer(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self.fields["producer_id"], self.fields["producer_epoch"]


class PlayableSession(NamedTuple):
    """A session of a transactional id, of a new instance of its client or in a new epoch of the same one."""

    time_ms: int
    transactional_id: str
    producer: tuple[int, int]
    raises_epoch: bool
    """Whether each end raises the epoch: the second generation of the protocol (KIP-890)."""


class PlayableEnd(NamedTuple):
    """The end of a transaction, as its producer wanted it, or by its coordinator."""

    time_ms: int
    transactional_id: str
    is_commit: bool
    is_timed_out: bool


PlayableStep = PlayableBatch | PlayableSession | PlayableEnd


@dataclass
class LeftOut:
    """The number of things that a replay does not play."""

    undecided: int = 0
    """Batches that no broker has decided about."""
    lost: int = 0
    """Events that the recording lacks."""
    cut: int = 0
    """Requests that were recorded without their batches, which were too many."""
    offsets: int = 0
    """Positions of groups in transactions."""


class Recording:
    """A recording that is to be played.

    It is read once for the decisions, which are remembered, and once more for each broker while its steps are played:
    records are in memory one request at a time.
    """

    def __init__(self, read: Callable[[], Iterable[Event]]) -> None:
        """`read` yields the events from the beginning, each time. Raises what that does."""
        self.partitions: dict[str, int] = {}
        """Topics, and the number of partitions that each needs."""
        self.left_out = LeftOut()
        self._read = read
        self._outcomes: dict[tuple[_Key, str, int], str] = {}
        self._second: set[str] = set()
        """Transactional ids whose producers end transactions by the second generation of the protocol."""
        self._brokers: set[int] = set()
        ends: dict[_Key, int] = {}
        for event in with_lives(read()):
            self._note(event, ends)

    def steps(self) -> Iterator[PlayableStep]:
        """Yields the steps in the order in which brokers received them, those of several brokers merged by time."""
        of_brokers = (self._events_of(broker) for broker in sorted(self._brokers))
        for event in heapq.merge(*of_brokers, key=lambda event: int(event["time_ms"])):
            if event["event"] == "request":
                yield from self._batches(event)
            elif event["event"] == "transaction":
                yield from self._transaction_step(event)

    def _events_of(self, broker: int) -> Iterator[Event]:
        return (
            one
            for one in with_lives(self._read())
            if one.get("broker_id") == broker and "time_ms" in one
        )

    def _note(self, event: Event, ends: dict[_Key, int]) -> None:
        """Remembers what later steps depend on; `ends`: the versions of requests that end transactions."""
        if "broker_id" in event:
            self._brokers.add(event["broker_id"])
        match event["event"]:
            case "decision":
                name = event["decision"]
                outcome: str = event["error"] if name == "reject" else _OUTCOMES.get(name, name)
                self._outcomes[_key(event), event["topic"], event["partition"]] = outcome
            case "request":
                self._note_request(event, ends)
            case "transaction" if event["step"] in _ENDS:
                if ends.get(_key(event), 0) >= _RAISES_EPOCH_FROM:
                    self._second.add(event["transactional_id"])
            case "transaction":
                self.left_out.offsets += event["step"] == "offsets"
            case "lost":
                self.left_out.lost += event["count"]

    def _note_request(self, event: Event, ends: dict[_Key, int]) -> None:
        if event["api"] == "end_txn":
            ends[_key(event)] = event["version"]
        self.left_out.cut += event["is_cut"]
        for batch in event["batches"]:
            needed = max(self.partitions.get(batch["topic"], 0), batch["partition"] + 1)
            self.partitions[batch["topic"]] = needed

    def _batches(self, event: Event) -> Iterator[PlayableBatch]:
        key = _key(event)
        for batch in event["batches"]:
            outcome = None
            if batch["producer_id"] != _NO_PRODUCER_ID:
                outcome = self._outcomes.get((key, batch["topic"], batch["partition"]))
                if outcome is None:
                    self.left_out.undecided += 1
                    continue
            fields = {name: value for name, value in batch.items() if name != "records"}
            records = batch["records"]
            yield PlayableBatch(
                event["time_ms"],
                batch["topic"],
                batch["partition"],
                event["transactional_id"],
                fields,
                None if records is None else base64.b64decode(records),
                outcome,
            )

    def _transaction_step(self, event: Event) -> Iterator[PlayableSession | PlayableEnd]:
        name, time_ms = event["transactional_id"], event["time_ms"]
        match event["step"]:
            case "session":
                producer = event["producer_id"], event["producer_epoch"]
                yield PlayableSession(time_ms, name, producer, name in self._second)
            case "commit" | "abort" as end:
                yield PlayableEnd(time_ms, name, end == "commit", is_timed_out=False)
            case "time_out":
                yield PlayableEnd(time_ms, name, is_commit=False, is_timed_out=True)


def _key(event: Event) -> _Key:
    return event["broker_id"], event["life"], event["connection_id"], event["correlation_id"]
