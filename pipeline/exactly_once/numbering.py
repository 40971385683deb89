"""Numbers a Spark partition's rows: with those of the ledger's entries, and new ones.

Which numbers a first attempt begins with is decided in `first_attempt.py`, how far earlier attempts came in
`later_attempt.py`. What they decide is recorded in the ledger here, before anything is sent. If another
attempt was faster, its entry is there instead, and is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from echoless.client.sequencer import Identity
from echoless.client.state import PartitionState, ProducerState
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import Begin, Stretch
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.first_attempt import LeaderAhead, begin_batch
from echoless.pipeline.exactly_once.later_attempt import CountStored, resume_batch
from echoless.pipeline.exactly_once.leaders import Leaders, Standing
from echoless.pipeline.exactly_once.ledger import Ledger
from echoless.pipeline.exactly_once.previous_batch import PreviousBatch, previous_batch
from echoless.pipeline.exactly_once.stretches import (
    Portion,
    current_stretches,
    handovers_of,
    portions_of,
)
from echoless.protocol.sequence import increment


class Numbering:
    """Sequence numbers for one attempt. Call `open` first."""

    def __init__(
        self,
        ledger: Ledger,
        leaders: Leaders,
        count_stored: CountStored,
        *,
        now_ms: int,
    ) -> None:
        self._ledger = ledger
        self._leaders = leaders
        self._count_stored = count_stored
        self._now_ms = now_ms
        self._counts: dict[str, int] = {}
        self._stored: dict[TopicPartition, int] = {}
        """Rows of each target that were stored when this attempt began."""
        self._identity: Identity | None = None
        """The identity this attempt sends under, once that is settled."""

    @property
    def timestamp_ms(self) -> int:
        begins = self._ledger.begins
        return begins[0].timestamp_ms if begins else self._now_ms

    def partition_count(self, topic: str) -> int:
        """The number of partitions when the batch was begun."""
        for begin in self._ledger.begins:
            if topic in begin.partition_counts:
                return begin.partition_counts[topic]
        if topic not in self._counts:
            self._counts[topic] = self._leaders.partition_count(topic)
        return self._counts[topic]

    def open(self) -> None:
        """Loads what earlier attempts have begun. Raises `SinkError`.

        Invariant: what is stored is settled together with the identity, and then no more.
        """
        while self._ledger.begins and self._ledger.end is None and self._identity is None:
            self._check_cluster()
            found = resume_batch(
                self._ledger.place, self._ledger.begins, self._leaders, self._count_stored
            )
            self._stored.update(found.rows)
            if found.is_known:
                self._identity = found.identity
            else:
                identity = self._leaders.next_identity(found.identity)
                self._record(identity, found.standings, found.rows)

    def cover(self, targets: Iterable[TopicPartition]) -> bool:
        """Ensures that the ledger has numbers for all targets, before anything is sent there.

        False: another attempt was faster, and its entries count; route the rows again.
        """
        if self._ledger.end is not None:
            return True
        known = current_stretches(self._ledger.begins)
        new = [target for target in targets if target not in known]
        if not new:
            return True
        is_recorded = self._extend(new) if self._ledger.begins else self._begin(new)
        if not is_recorded:
            self._follow()
        return is_recorded

    def stored(self) -> dict[TopicPartition, list[Portion]]:
        """The portions stored when this attempt began; only targets with any."""
        return self.portions(self._stored)

    def portions(self, rows: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[Portion]]:
        """The numbers under which the first `rows` of each target are stored, in order."""
        return portions_of(self._ledger.begins, rows)

    def handovers(self, rows: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[Portion]]:
        """The same for targets whose rows continue under a later identity."""
        return handovers_of(self._ledger.begins, rows)

    def state(self) -> ProducerState:
        """The state of a producer that is given the rows after the stored ones."""
        return self.state_after(self._stored)

    def state_after(self, rows: Mapping[TopicPartition, int]) -> ProducerState:
        """The state of a producer after the first `rows` of the batch in each target."""
        assert self._identity is not None
        sequences = dict(self._previous.sequences_under(self._identity))
        for target, stretch in current_stretches(self._ledger.begins).items():
            count = rows.get(target, stretch.rows_before) - stretch.rows_before
            sequences[target] = increment(stretch.sequence, count)
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

    def _begin(self, targets: list[TopicPartition]) -> bool:
        """Records the batch's first numbers; False: another attempt has begun."""
        found = begin_batch(self._previous, self._leaders, targets)
        if not isinstance(found, LeaderAhead):
            return self._record(found.identity, found.standings)
        self._ledger.refresh()
        if not self._ledger.begins:
            raise SinkError(
                f"{self._ledger.place}: {found.target} has more records of producer "
                f"{found.producer_id} than the ledger: the ledger is an old copy, or an attempt "
                "with other rows ran at the same time as the last one. Check what is stored "
                "there, and continue under another name"
            )
        return False

    def _extend(self, targets: list[TopicPartition]) -> bool:
        """Records numbers for further targets; False: another attempt was faster."""
        assert self._identity is not None
        standings = self._leaders.ask(targets, self._identity.producer_id)
        return self._record(self._identity, standings)

    def _follow(self) -> None:
        """Adopts the entries of an attempt that was faster."""
        if self._identity is None:
            self.open()
        elif self._ledger.end is None and self._ledger.begins[-1].identity != self._identity:
            raise SinkError(f"{self._ledger.place}: another attempt continues under other numbers")

    def _record(
        self,
        identity: Identity,
        standings: Mapping[TopicPartition, Standing],
        rows_before: Mapping[TopicPartition, int] | None = None,
    ) -> bool:
        """Records the numbers for the targets; False: another attempt was faster."""
        sequences = self._previous.sequences_under(identity)
        begin = Begin(
            query_id=self._ledger.place.query_id,
            cluster_id=self._leaders.cluster_id(),
            identity=identity,
            timestamp_ms=self.timestamp_ms,
            partition_counts={
                t: self.partition_count(t) for t in {t.topic: None for t in standings}
            },
            stretches=tuple(
                Stretch(
                    topic=target.topic,
                    partition=target.partition,
                    sequence=sequences.get(target, 0),
                    rows_before=(rows_before or {}).get(target, 0),
                    log_end_offset=standings[target].log_end_offset,
                )
                for target in sorted(standings)
            ),
        )
        is_first = self._ledger.add(begin)
        if is_first:
            self._identity = identity
        return is_first

    def _check_cluster(self) -> None:
        """Refuses to move a batch in progress: its stored rows stay where they are."""
        for begin in self._ledger.begins:
            if begin.cluster_id != self._leaders.cluster_id():
                raise SinkError(
                    f"{self._ledger.place} was begun on cluster {begin.cluster_id}, and this is "
                    f"{self._leaders.cluster_id()}: run it there to its end, or start "
                    "over under another name"
                )
