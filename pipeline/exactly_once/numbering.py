"""Assigns producer identity and sequences to a Spark partition's rows, and records them before they are used.

An attempt finds its batch in one of four states. What the ledger says decides; leaders only say how many
rows are stored.

| state | the ledger has | before the next rows are sent |
|---|---|---|
| not begun | no entry | the identity is chosen (`first_attempt.py`) and a `begin` is recorded |
| begun by us | a last `begin` with the identity of this attempt | a `begin` for targets without a range is recorded |
| begun by another | a last `begin` with another identity | its rows are counted (`later_attempt.py`) and its identity, or the next epoch, becomes ours; refused if this attempt sends under an identity already |
| ended | an `end` | nothing: rows are compared and not sent |

Each entry is created only if there is none of its name. If another attempt was faster, its entry has been read
instead, and the batch is in another state than before.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from echoless.client.sequencer import Identity
from echoless.client.state import PartitionState, ProducerState
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import Begin, SequenceRange
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.first_attempt import (
    LeaderAhead,
    begin_batch,
    extend_batch,
)
from echoless.pipeline.exactly_once.later_attempt import CountStored, resume_batch
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries, LeaderState
from echoless.pipeline.exactly_once.ledger import Ledger, Recorded
from echoless.pipeline.exactly_once.previous_batch import PreviousBatch, previous_batch
from echoless.pipeline.exactly_once.sequence_ranges import (
    StoredRange,
    current_ranges,
    handovers_of,
    stored_ranges_of,
)
from echoless.protocol.sequence import increment


class BatchState(enum.Enum):
    """State of a batch as an attempt sees it: the table above."""

    NOT_BEGUN = enum.auto()
    BEGUN_BY_US = enum.auto()
    BEGUN_BY_ANOTHER = enum.auto()
    ENDED = enum.auto()


class Coverage(enum.Enum):
    """Outcome of asking for sequences for the targets of some rows."""

    COMPLETE = enum.auto()
    """The ledger covers all targets, or the batch has ended."""
    CHANGED = enum.auto()
    """Another attempt was faster. Its entries may spread keys otherwise: rows have to be routed again."""


class Numbering:
    """Identity and sequences of one attempt. Call `resume` first."""

    def __init__(
        self,
        ledger: Ledger,
        leaders: LeaderQueries,
        count_stored: CountStored,
        check_age: Callable[[], None],
        *,
        now_ms: int,
    ) -> None:
        """`check_age` raises `SinkError` if the ledger is an old copy; it is called before a lane gets its first producer."""
        self._ledger = ledger
        self._leaders = leaders
        self._count_stored = count_stored
        self._check_age = check_age
        self._now_ms = now_ms
        self._counts: dict[str, int] = {}
        self._stored: dict[TopicPartition, int] = {}
        """Rows of each target that were stored when this attempt began."""
        self._identity: Identity | None = None
        """The identity that this attempt sends under, once it is settled."""
        self.is_first = False
        """Whether this attempt has begun the batch, so that none can have sent its rows before."""

    @property
    def state(self) -> BatchState:
        if self._ledger.end is not None:
            return BatchState.ENDED
        if not self._ledger.begins:
            return BatchState.NOT_BEGUN
        if self._ledger.begins[-1].identity == self._identity:
            return BatchState.BEGUN_BY_US
        return BatchState.BEGUN_BY_ANOTHER

    @property
    def timestamp_ms(self) -> int:
        begins = self._ledger.begins
        return begins[0].timestamp_ms if begins else self._now_ms

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions when the batch was begun. Raises `SinkError`."""
        for begin in self._ledger.begins:
            if topic in begin.partition_counts:
                return begin.partition_counts[topic]
        if topic not in self._counts:
            self._counts[topic] = self._leaders.partition_count(topic)
        return self._counts[topic]

    def resume(self) -> None:
        """Settles how far another attempt came, if one has begun the batch. Raises `SinkError`.

        Invariant: what is stored is settled together with the identity, and then no more.
        """
        while self.state is BatchState.BEGUN_BY_ANOTHER:
            self._adopt()

    def cover(self, targets: Iterable[TopicPartition]) -> Coverage:
        """Ensures that the ledger has sequences for all targets, before a record is sent there.

        Raises `SinkError`.
        """
        if self.state is BatchState.ENDED:
            return Coverage.COMPLETE
        known = current_ranges(self._ledger.begins)
        new = [target for target in targets if target not in known]
        if not new:
            return Coverage.COMPLETE
        recorded = self._begin(new) if self.state is BatchState.NOT_BEGUN else self._extend(new)
        if recorded is Recorded.BY_US:
            return Coverage.COMPLETE
        self.resume()
        return Coverage.CHANGED

    def stored_at_start(self) -> dict[TopicPartition, list[StoredRange]]:
        """Returns what was stored when this attempt began; only targets with rows."""
        return self.stored_ranges(self._stored)

    def stored_ranges(
        self, rows: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, list[StoredRange]]:
        """Returns, in order, the ranges in which the first `rows` of each target are stored."""
        return stored_ranges_of(self._ledger.begins, rows)

    def handovers(
        self, rows: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, list[StoredRange]]:
        """Returns the ranges of those targets whose rows continue under a later identity."""
        return handovers_of(self._ledger.begins, rows)

    def producer_state(self) -> ProducerState:
        """Returns the state of a producer that is given the rows after the stored ones."""
        return self.producer_state_after(self._stored)

    def producer_state_after(self, rows: Mapping[TopicPartition, int]) -> ProducerState:
        """Returns the state of a producer after the first `rows` of the batch in each target."""
        assert self._identity is not None
        sequences = dict(self._previous.sequences_under(self._identity))
        for target, sequence_range in current_ranges(self._ledger.begins).items():
            count = rows.get(target, sequence_range.rows_before) - sequence_range.rows_before
            sequences[target] = increment(sequence_range.sequence, count)
        producer_id, epoch = self._identity
        return ProducerState(
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=tuple(
                PartitionState(
                    topic=target.topic,
                    partition=target.partition,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    next_sequence=sequences[target],
                )
                for target in sorted(sequences)
            ),
        )

    @cached_property
    def _previous(self) -> PreviousBatch:
        end = self._ledger.previous
        is_here = end is not None and end.cluster_id == self._leaders.cluster_id()
        return previous_batch(end if is_here else None)

    def _adopt(self) -> None:
        """Takes the last entry's identity, or the next epoch if a leader has forgotten the producer."""
        if self._identity is not None:
            raise SinkError(
                f"{self._ledger.location}: another attempt continues under another identity"
            )
        self._check_cluster()
        found = resume_batch(
            self._ledger.location, self._ledger.begins, self._leaders, self._count_stored
        )
        self._stored.update(found.rows)
        if found.is_known:
            self._identity = found.identity
        else:
            identity = self._leaders.next_identity(found.identity)
            self._record(identity, found.leader_states, found.rows)

    def _begin(self, targets: list[TopicPartition]) -> Recorded:
        """Records the batch's first sequence ranges. Raises `SinkError`."""
        if self._previous.identity is None:
            self._check_age()
        found = begin_batch(self._previous, self._leaders, targets)
        if isinstance(found, LeaderAhead):
            return self._give_way(found)
        recorded = self._record(found.identity, found.leader_states)
        self.is_first = recorded is Recorded.BY_US
        return recorded

    def _extend(self, targets: list[TopicPartition]) -> Recorded:
        """Records sequence ranges for further targets."""
        assert self._identity is not None
        found = extend_batch(self._previous, self._leaders, self._identity, targets)
        if isinstance(found, LeaderAhead):
            return self._give_way(found)
        return self._record(found.identity, found.leader_states)

    def _give_way(self, found: LeaderAhead) -> Recorded:
        """Takes the entry of an attempt that was faster. Raises `SinkError` if there is none."""
        known = len(self._ledger.begins)
        self._ledger.refresh()
        if len(self._ledger.begins) == known and self._ledger.end is None:
            raise found.error(self._ledger.location)
        return Recorded.BY_ANOTHER

    def _record(
        self,
        identity: Identity,
        leader_states: Mapping[TopicPartition, LeaderState],
        rows_before: Mapping[TopicPartition, int] | None = None,
    ) -> Recorded:
        """Records a `begin` for the targets; if that succeeds, `identity` is ours."""
        begin = Begin(
            query_id=self._ledger.location.query_id,
            cluster_id=self._leaders.cluster_id(),
            identity=identity,
            timestamp_ms=self.timestamp_ms,
            partition_counts={
                topic: self.partition_count(topic)
                for topic in {t.topic: None for t in leader_states}
            },
            sequence_ranges=self._sequence_ranges(identity, leader_states, rows_before or {}),
            origin=self._ledger.location.task_origin,
        )
        recorded = self._ledger.add(begin)
        if recorded is Recorded.BY_US:
            self._identity = identity
        return recorded

    def _sequence_ranges(
        self,
        identity: Identity,
        leader_states: Mapping[TopicPartition, LeaderState],
        rows_before: Mapping[TopicPartition, int],
    ) -> tuple[SequenceRange, ...]:
        """Returns a range for each target, continuing where the batch before this one ended."""
        sequences = self._previous.sequences_under(identity)
        return tuple(
            SequenceRange(
                topic=target.topic,
                partition=target.partition,
                sequence=sequences.get(target, 0),
                rows_before=rows_before.get(target, 0),
                log_end_offset=leader_states[target].log_end_offset,
            )
            for target in sorted(leader_states)
        )

    def _check_cluster(self) -> None:
        """Refuses to move a batch in progress: its stored rows stay where they are."""
        for begin in self._ledger.begins:
            if begin.cluster_id != self._leaders.cluster_id():
                raise SinkError(
                    f"{self._ledger.location} was begun on cluster {begin.cluster_id}, and this is "
                    f"{self._leaders.cluster_id()}: run it there to its end, or start "
                    "over under another name"
                )
