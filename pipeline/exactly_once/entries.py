"""The entries of the ledger as JSON; `docs/formats/ledger.md` has an example of each.

`begin` is created before the first record is sent under its numbers, `end` when all are acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from echoless.client.sequencer import Identity
from echoless.client.state import ProducerState
from echoless.client.topic_partition import TopicPartition

VERSION: Final = 1


@dataclass(slots=True, frozen=True, kw_only=True)
class Stretch:
    """Rows of one topic and partition that are sent under consecutive numbers."""

    topic: str
    partition: int
    sequence: int
    """The sequence of its first record."""
    rows_before: int
    """How many of the batch's rows for this partition were stored under older numbers."""
    log_end_offset: int
    """The log end before any of it was sent: its records are at or above this offset."""

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True, frozen=True, kw_only=True)
class Begin:
    """The numbers of the stretches, all under one producer id and epoch."""

    query_id: str
    cluster_id: str
    """The brokers' cluster; the producer id is meaningless in another."""
    identity: Identity
    timestamp_ms: int
    """The timestamp of rows without one."""
    partition_counts: Mapping[str, int]
    """Partitions of each topic when the batch was begun: keys are spread over this many."""
    stretches: tuple[Stretch, ...]


@dataclass(slots=True, frozen=True, kw_only=True)
class Target:
    """The rows that one topic and partition received in this batch."""

    topic: str
    partition: int
    rows: int
    fingerprint: str
    """Fingerprint of the rows (`fingerprint.py`)."""

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True, frozen=True, kw_only=True)
class End:
    """The end of a batch: everything is stored. The next batch continues from `state`."""

    query_id: str
    cluster_id: str
    rows: int
    targets: tuple[Target, ...]
    state: ProducerState


Entry = Begin | End


class EntryError(ValueError):
    """The text is not a ledger entry."""


def encode_entry(entry: Entry) -> bytes:
    """The content of the entry's file."""
    fields: dict[str, Any] = {"version": VERSION, "kind": type(entry).__name__.lower()}
    fields |= asdict(entry)
    if isinstance(entry, Begin):
        fields["identity"] = entry.identity._asdict()
    else:
        fields["state"] = json.loads(entry.state.to_json())
    return json.dumps(fields, indent=1).encode()


def decode_entry(data: bytes) -> Entry:
    """Raises `EntryError`."""
    try:
        fields = json.loads(data)
        if fields["version"] != VERSION:
            raise EntryError(f"version {fields['version']}; this is version {VERSION}")
        return _Reader(fields).entry()
    except (KeyError, TypeError, ValueError) as error:
        raise EntryError(f"not a ledger entry: {error!r}") from error


class _Reader:
    """Reads an entry's fields from decoded JSON."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def entry(self) -> Entry:
        match self._fields["kind"]:
            case "begin":
                return self._begin()
            case "end":
                return self._end()
        raise EntryError(f"kind {self._fields['kind']!r}")

    def _begin(self) -> Begin:
        fields = self._fields
        return Begin(
            query_id=fields["query_id"],
            cluster_id=fields["cluster_id"],
            identity=Identity(**fields["identity"]),
            timestamp_ms=fields["timestamp_ms"],
            partition_counts=fields["partition_counts"],
            stretches=tuple(Stretch(**one) for one in fields["stretches"]),
        )

    def _end(self) -> End:
        fields = self._fields
        return End(
            query_id=fields["query_id"],
            cluster_id=fields["cluster_id"],
            rows=fields["rows"],
            targets=tuple(Target(**one) for one in fields["targets"]),
            state=ProducerState.from_json(json.dumps(fields["state"])),
        )
