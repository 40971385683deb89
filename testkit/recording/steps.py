"""The steps of producers in a recording, in order: batches, and the sessions and ends of transactions.

A batch that no broker has decided about (its partition had moved, or a fault kept it away) is left out: the
same batch was sent again. Pure: events in, steps out.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from echoless.diagram.lives import with_lives

Event = Mapping[str, Any]
_Key = tuple[int, int, int, int]
"""Broker id, the broker's life, connection id, correlation id: one request."""
_NO_PRODUCER_ID: Final = -1
_RAISES_EPOCH_FROM: Final = 5
"""The version of EndTxn."""
_OUTCOMES: Final = {"divergent_duplicate": "duplicate"}


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
    offsets: int = 0
    """Positions of groups in transactions."""


def steps_of(events: Iterable[Event], left_out: LeftOut) -> Iterator[PlayableStep]:
    """Yields the steps in the order in which brokers received them; counts what is left out."""
    recorded = list(with_lives(events))
    if len({event.get("broker_id", 0) for event in recorded}) > 1:
        recorded.sort(key=lambda event: event.get("time_ms", 0))
    second = _second_generation(recorded)
    outcomes = {
        (_key(event), event["topic"], event["partition"]): event
        for event in recorded
        if event["event"] == "decision"
    }
    for event in recorded:
        match event["event"]:
            case "request":
                yield from _batches(event, outcomes, left_out)
            case "transaction":
                yield from _transaction_step(event, second, left_out)
            case "lost":
                left_out.lost += event["count"]


def _key(event: Event) -> _Key:
    return event["broker_id"], event["life"], event["connection_id"], event["correlation_id"]


def _batches(
    event: Event, outcomes: Mapping[tuple[_Key, str, int], Event], left_out: LeftOut
) -> Iterator[PlayableBatch]:
    key = _key(event)
    for batch in event["batches"]:
        outcome = None
        if batch["producer_id"] != _NO_PRODUCER_ID:
            decision = outcomes.get((key, batch["topic"], batch["partition"]))
            if decision is None:
                left_out.undecided += 1
                continue
            name = decision["decision"]
            outcome = decision["error"] if name == "reject" else _OUTCOMES.get(name, name)
        records = batch["records"]
        yield PlayableBatch(
            event["time_ms"],
            batch["topic"],
            batch["partition"],
            event["transactional_id"],
            batch,
            None if records is None else base64.b64decode(records),
            outcome,
        )


def _second_generation(events: Sequence[Event]) -> set[str]:
    """The transactional ids whose producers end transactions by the second generation of the protocol."""
    versions = {_key(one): one["version"] for one in events if one["event"] == "request"}
    return {
        one["transactional_id"]
        for one in events
        if one["event"] == "transaction"
        and one["step"] in {"commit", "abort"}
        and versions.get(_key(one), 0) >= _RAISES_EPOCH_FROM
    }


def _transaction_step(
    event: Event, second: Collection[str], left_out: LeftOut
) -> Iterator[PlayableSession | PlayableEnd]:
    name, time_ms = event["transactional_id"], event["time_ms"]
    match event["step"]:
        case "session":
            producer = event["producer_id"], event["producer_epoch"]
            yield PlayableSession(time_ms, name, producer, name in second)
        case "commit" | "abort" as end:
            yield PlayableEnd(time_ms, name, end == "commit", is_timed_out=False)
        case "time_out":
            yield PlayableEnd(time_ms, name, is_commit=False, is_timed_out=True)
        case "offsets":
            left_out.offsets += 1
