"""The promises of replicas to each other: one leader per epoch, equal logs, equal producer state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from echoless.protocol.records import iterate_records
from tests.simulation.checkers.logs import ReplicaLog, read_batches
from tests.simulation.observations import Append


class KnownBatch(NamedTuple):
    """A batch as the producer state of a replica knows it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class KnownProducer(NamedTuple):
    """A producer as the state of a replica knows it."""

    epoch: int
    window: tuple[KnownBatch, ...]
    open_since: int | None = None
    """The first offset of its open transaction."""
    last_marker: object = None


State = Mapping[int, KnownProducer]
"""By producer id."""


def one_leader_per_epoch(appends: Iterable[Append]) -> Iterator[str]:
    """Whatever any disk ever took: the same offset in the same epoch is the same bytes."""
    seen: dict[tuple[str, int, int], tuple[bytes, Append]] = {}
    for append in appends:
        for batch in read_batches(append.data):
            key = append.directory, batch.leader_epoch, batch.base_offset
            data, first = seen.setdefault(key, (batch.data, append))
            if data != batch.data:
                yield (
                    f"{append.directory}: offset {batch.base_offset} in leader epoch "
                    f"{batch.leader_epoch} was written as different batches by {first.node} at "
                    f"{first.at:.3f} and {append.node} at {append.at:.3f}"
                )


def one_record_per_offset(appends: Iterable[Append]) -> Iterator[str]:
    """The same of compacted topics: what cleaning left of a batch are records that the batch had."""
    seen: dict[tuple[str, int, int], tuple[tuple[bytes | None, bytes | None], Append]] = {}
    for append in appends:
        for batch in read_batches(append.data):
            for record in iterate_records(memoryview(batch.data)):
                key = append.directory, batch.leader_epoch, record.offset
                content = record.key, record.value
                before, first = seen.setdefault(key, (content, append))
                if before != content:
                    yield (
                        f"{append.directory}: offset {record.offset} in leader epoch "
                        f"{batch.leader_epoch} was written as different records by {first.node} at "
                        f"{first.at:.3f} and {append.node} at {append.at:.3f}"
                    )


def equal_logs(name: str, logs: Sequence[ReplicaLog]) -> Iterator[str]:
    """Once all have caught up: the same bytes from the highest start to the end."""
    first, *others = logs
    for other in others:
        start = max(first.start, other.start)
        ours, theirs = _from(first, start), _from(other, start)
        if ours == theirs:
            continue
        offsets = sorted(ours.keys() | theirs.keys())
        offset = next(o for o in offsets if ours.get(o) != theirs.get(o))
        yield (
            f"{name}: {first.node} ({first.start}..{first.end}) and {other.node} "
            f"({other.start}..{other.end}) differ from offset {offset} on"
        )


def _from(log: ReplicaLog, start: int) -> dict[int, bytes]:
    return {batch.base_offset: batch.data for batch in log.batches if batch.next_offset > start}


def state_follows_from_log(
    name: str, log: ReplicaLog, state: State, window_size: int
) -> Iterator[str]:
    """Each producer's window ends with its last batches in the log."""
    wanted: dict[int, list[KnownBatch]] = {}
    epochs: dict[int, int] = {}
    for batch in log.batches:
        if batch.producer_id < 0:
            continue
        known = KnownBatch(
            batch.base_sequence,
            (batch.base_sequence + batch.record_count - 1) % 2**31,
            batch.base_offset,
            batch.next_offset - 1,
        )
        if epochs.get(batch.producer_id) != batch.producer_epoch:
            wanted[batch.producer_id] = []
        epochs[batch.producer_id] = batch.producer_epoch
        if not batch.is_control:  # a marker only takes the epoch
            wanted[batch.producer_id].append(known)
    for producer_id, batches in wanted.items():
        newest = tuple(batches[-window_size:])
        entry = state.get(producer_id)
        window = () if entry is None else entry.window
        if window[len(window) - len(newest) :] != newest:
            yield (
                f"{name}: {log.node} knows {window} of producer {producer_id}, "
                f"its log says {newest}"
            )


def equal_states(name: str, states: Mapping[str, State]) -> Iterator[str]:
    """Replicas with equal logs know the same of every producer."""
    (first, ours), *others = states.items()
    for node, theirs in others:
        for producer_id in dict.fromkeys((*ours, *theirs)):
            if ours.get(producer_id) != theirs.get(producer_id):
                yield (
                    f"{name}: of producer {producer_id} {first} knows {ours.get(producer_id)}, "
                    f"{node} knows {theirs.get(producer_id)}"
                )
