"""The entries of the ledger as JSON; `docs/formats/ledger.md` has an example of each.

`begin` is created before the first record of its sequence ranges is sent, `end` when all records of the batch
are acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from echoless.client.sequencer import Identity
from echoless.client.state import ProducerState
from echoless.client.topic_partition import TopicPartition

VERSION: Final = 1
_NAMES_IN_FILES: Final = {"sequence_ranges": "stretches"}
"""Names of fields in files of version 1, where they differ from the classes'."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SequenceRange:
    """Consecutive sequences, from `sequence` on, for rows of a batch that go to one topic and partition."""

    topic: str
    partition: int
    sequence: int
    """The sequence of the first record."""
    rows_before: int
    """Number of the batch's rows for this partition that are stored under an earlier identity."""
    log_end_offset: int
    """Lower bound for the records' offsets: the log end before the first one was sent."""

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class TaskOrigin(NamedTuple):
    """The task that a lane was first used for in a batch."""

    run: str
    """Id of the execution of the batch's tasks."""
    spark_partition: int
    """Number of the task in that run."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Begin:
    """Sequence ranges under one producer id and epoch, recorded before they are used."""

    query_id: str
    cluster_id: str
    """Id of the cluster, outside of which the producer id means nothing."""
    identity: Identity
    timestamp_ms: int
    """Timestamp for rows without one."""
    partition_counts: Mapping[str, int]
    """Number of partitions of each topic when the batch was begun; keys are spread over these."""
    sequence_ranges: tuple[SequenceRange, ...]
    origin: TaskOrigin | None = None
    """The task that the entry is about; None in entries of version 0.2."""


@dataclass(slots=True, frozen=True, kw_only=True)
class PartitionRows:
    """Rows that one topic and partition received in a batch."""

    topic: str
    partition: int
    rows: int
    fingerprint: str
    """Checksums of the rows (`fingerprint.py`)."""

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True, frozen=True, kw_only=True)
class End:
    """End of a batch: all rows are stored. The next batch continues from `state`."""

    query_id: str
    cluster_id: str
    rows: int
    targets: tuple[PartitionRows, ...]
    state: ProducerState


Entry = Begin | End


class EntryError(ValueError):
    """The file is not a ledger entry of this version."""


def encode_entry(entry: Entry) -> bytes:
    """Returns the content of the entry's file."""
    fields: dict[str, Any] = {"version": VERSION, "kind": type(entry).__name__.lower()}
    fields |= {_NAMES_IN_FILES.get(name, name): value for name, value in _fields(entry).items()}
    if isinstance(entry, Begin):
        fields["identity"] = entry.identity._asdict()
        fields["stretches"] = [_fields(one) for one in entry.sequence_ranges]
        fields["origin"] = None if entry.origin is None else entry.origin._asdict()
    else:
        fields["targets"] = [_fields(one) for one in entry.targets]
        fields["state"] = json.loads(entry.state.to_json())
    return json.dumps(fields).encode()  # indented it would take ten times as long


def _fields(record: Entry | SequenceRange | PartitionRows) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def decode_entry(data: bytes) -> Entry:
    """Parses an entry's file. Raises `EntryError`."""
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
            sequence_ranges=tuple(SequenceRange(**one) for one in fields["stretches"]),
            origin=None if fields.get("origin") is None else TaskOrigin(**fields["origin"]),
        )

    def _end(self) -> End:
        fields = self._fields
        return End(
            query_id=fields["query_id"],
            cluster_id=fields["cluster_id"],
            rows=fields["rows"],
            targets=tuple(PartitionRows(**one) for one in fields["targets"]),
            state=ProducerState.from_json(json.dumps(fields["state"])),
        )
