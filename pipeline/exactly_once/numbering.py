"""Numbers a Spark partition's rows: with those of the ledger's entries, and new ones.

The first attempt at a batch goes on where the batch before it ended, if all leaders agree; if one has
forgotten the producer, everything begins at 0 under its next epoch. Any later attempt loads what is in
the ledger, and asks the leaders how far it came. Where one has forgotten, what is stored is counted in the
log itself, and the rest goes on under the next epoch, which the ledger gets to know first. An epoch, and
not another id, because it also ends an attempt that is still alive somewhere: from the first record on
that a partition gets under it. What such an attempt stores between the count and that record is stored
twice; `partition_writer.py` looks for it before the end. So partitions without rows in the batch, which
may be forgotten at any time, do not lead to the next epoch once it was begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from client.sequencer import BAD_NEWS_MAX, EPOCH_MAX, Identity
from client.state import PartitionState, ProducerState
from pipeline.exactly_once.entries import Begin, End, Stretch, TopicPartition
from pipeline.exactly_once.errors import SinkError
from pipeline.exactly_once.leaders import Leaders, Standing
from pipeline.exactly_once.ledger import Ledger
from pipeline.exactly_once.stretches import (
    Portion,
    agrees,
    count_found,
    current_stretches,
    handovers_of,
    identity_of,
    is_ahead,
    portions_of,
)
from protocol.sequence import increment

BAD_NEWS_PAUSE_S: Final = 0.5

CountStored = Callable[[Stretch, Identity, int], int]
"""Counts in the log how many records of a stretch there are before an offset."""


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
        """Of each target, the rows that were there when this attempt began."""
        self._identity: Identity | None = None
        """What this attempt sends under, once that is settled."""

    @property
    def timestamp_ms(self) -> int:
        begins = self._ledger.begins
        return begins[0].timestamp_ms if begins else self._now_ms

    def partition_count(self, topic: str) -> int:
        """As it was when the batch was begun."""
        for begin in self._ledger.begins:
            if topic in begin.partition_counts:
                return begin.partition_counts[topic]
        if topic not in self._counts:
            self._counts[topic] = self._leaders.partition_count(topic)
        return self._counts[topic]

    def open(self) -> None:
        """Loads what earlier attempts have begun. Raises `SinkError`."""
        self._check_cluster()
        while self._ledger.begins and self._ledger.end is None and self._identity is None:
            self._take_up()

    def cover(self, targets: Iterable[TopicPartition]) -> bool:
        """Sees to it that the ledger has numbers for all targets, before anything is sent there.

        False: another attempt was faster, and what it has written holds; look again where the rows go.
        """
        if self._ledger.end is not None:
            return True
        known = current_stretches(self._ledger.begins)
        new = [target for target in targets if target not in known]
        if not new:
            return True
        if self._ledger.begins:
            assert self._identity is not None
            return self._add(self._identity, self._leaders.ask(new, self._identity.producer_id))
        return self._begin(new)

    def stored(self) -> dict[TopicPartition, list[Portion]]:
        """What was stored when this attempt began; only targets with any."""
        return self.portions(self._stored)

    def portions(self, rows: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[Portion]]:
        """The numbers under which the first `rows` of each target are stored, in order."""
        return portions_of(self._ledger.begins, rows)

    def handovers(self, rows: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[Portion]]:
        """Where rows go on under a later identity; as `portions`."""
        return handovers_of(self._ledger.begins, rows)

    def state(self) -> ProducerState:
        """Where a producer begins that is given the rows behind the stored ones."""
        return self.state_behind(self._stored)

    def state_behind(self, rows: Mapping[TopicPartition, int]) -> ProducerState:
        """Where the next record goes, when so many of the batch's rows are stored."""
        assert self._identity is not None
        sequences = self._previous_sequences(self._identity)
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

    # --- the first attempt -----------------------------------------------------------------------

    def _begin(self, targets: list[TopicPartition]) -> bool:
        previous = self._previous()
        if previous is None:
            identity = self._leaders.new_identity()
            return self._add(identity, self._leaders.ask(targets, identity.producer_id))
        identity = identity_of(previous)
        sequences = self._previous_sequences(identity)
        standings = self._leaders.ask(targets, identity.producer_id)
        # One that is gone, or has no leader, is left out by the next epoch.
        idle = [target for target in sequences if target not in standings]
        found = {**standings, **self._leaders.ask_once(idle, identity.producer_id)}
        if self._was_begun(found, identity):
            return False
        is_known = len(found) == len(standings) + len(idle) and all(
            agrees(standing.found, identity, sequences.get(target, 0))
            for target, standing in found.items()
        )
        return self._add(identity if is_known else self._next_identity(identity), standings)

    def _was_begun(self, standings: Mapping[TopicPartition, Standing], identity: Identity) -> bool:
        """Whether another attempt has begun meanwhile; takes it up.

        Raises `SinkError` where leaders have more than the batch before this one, and nobody has begun.
        """
        sequences = self._previous_sequences(identity)
        ahead = [
            target
            for target, standing in standings.items()
            if is_ahead(standing.found, identity, sequences.get(target, 0))
        ]
        if not ahead:
            return False
        self._ledger.refresh()
        if not self._ledger.begins:
            raise SinkError(
                f"{self._ledger.place}: {ahead[0]} has more records of producer "
                f"{identity.producer_id} than the ledger: the ledger is an old copy, or an attempt "
                "with other rows ran at the same time as the last one. Look what is stored there, and "
                "go on under another name"
            )
        self.open()
        return True

    def _previous(self) -> End | None:
        """How the batch before this one has ended, if that was in this cluster."""
        previous = self._ledger.previous
        is_here = previous is not None and previous.cluster_id == self._leaders.cluster_id()
        return previous if is_here else None

    def _previous_sequences(self, identity: Identity) -> dict[TopicPartition, int]:
        """Where the batch before this one left the partitions, under this identity."""
        previous = self._previous()
        if previous is None or identity_of(previous) != identity:
            return {}
        return {
            TopicPartition(one.topic, one.partition): one.next_sequence
            for one in previous.state.partitions
        }

    def _add(
        self,
        identity: Identity,
        standings: Mapping[TopicPartition, Standing],
        rows_before: Mapping[TopicPartition, int] | None = None,
    ) -> bool:
        """Records the numbers for the targets; False: another attempt was faster."""
        sequences = self._previous_sequences(identity)
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
        if self._ledger.add(begin):
            self._identity = identity
            return True
        if self._identity is None:
            self.open()
        elif self._ledger.end is None and self._ledger.begins[-1].identity != self._identity:
            raise SinkError(f"{self._ledger.place}: another attempt goes on under other numbers")
        return False

    # --- a later attempt -------------------------------------------------------------------------

    def _take_up(self) -> None:
        """How far the attempts before this one came.

        Invariant: what is stored is settled together with the identity, and then no more.
        """
        assert self._identity is None
        identity = self._ledger.begins[-1].identity
        for attempt in range(BAD_NEWS_MAX):
            if attempt:  # a leader that has just become one may not know better
                time.sleep(BAD_NEWS_PAUSE_S)
            stretches = current_stretches(self._ledger.begins)
            standings = self._leaders.ask(stretches, identity.producer_id)
            self._check_not_fenced(standings, identity)
            counts = {t: count_found(standings[t].found, identity, s) for t, s in stretches.items()}
            if None not in counts.values():
                break
        self._settle(identity, standings, counts)

    def _settle(
        self,
        identity: Identity,
        standings: Mapping[TopicPartition, Standing],
        counts: Mapping[TopicPartition, int | None],
    ) -> None:
        """Goes on under the next epoch only where a partition with rows has forgotten the producer.

        An attempt that is still alive stores rows until then, which `handovers` finds.
        """
        stretches = current_stretches(self._ledger.begins)
        is_known = True
        for target, count in counts.items():
            stretch = stretches[target]
            if count is None:
                end = standings[target].log_end_offset
                count = self._count_stored(stretch, identity, end)  # noqa: PLW2901
                is_known &= not count and not stretch.sequence
            self._stored[target] = stretch.rows_before + count
        if is_known:
            self._identity = identity
        else:
            self._add(self._next_identity(identity), standings, self._stored)

    def _check_not_fenced(
        self, standings: Mapping[TopicPartition, Standing], identity: Identity
    ) -> None:
        for target, standing in standings.items():
            found = standing.found
            if found is not None and found.producer_epoch > identity.producer_epoch:
                raise SinkError(
                    f"{self._ledger.place}: {target} knows epoch {found.producer_epoch} of producer "
                    f"{identity.producer_id}, the ledger {identity.producer_epoch}: another attempt "
                    "has gone on, or the ledger is an old copy"
                )

    def _check_cluster(self) -> None:
        """A batch that is under way cannot move: what is stored stays where it is."""
        for begin in self._ledger.begins if self._ledger.end is None else ():
            if begin.cluster_id != self._leaders.cluster_id():
                raise SinkError(
                    f"{self._ledger.place} was begun on cluster {begin.cluster_id}, and this is "
                    f"{self._leaders.cluster_id()}: run it there to its end, or begin anew with "
                    "another name"
                )

    def _next_identity(self, identity: Identity) -> Identity:
        producer_id, epoch = identity
        if epoch == EPOCH_MAX:
            return self._leaders.new_identity()
        return Identity(producer_id, epoch + 1)
