"""Transaction markers for partitions that this broker leads: appended as with acks=all, and answered when all are committed.

A marker is a batch like any other to leadership, in-sync replicas, the doubt about the session, and the high watermark; only
who asks for it differs. Whether it may end what it wants to end, the log decides (`protocol/marker_decision.py`); a copy of one
that is stored waits for the first one's commit. Checked here, because only a broker knows it:

    an older coordinator epoch than the leader epoch of its partition of `__transaction_state`  -> 52
    without a number, of the second generation, and in the epoch of the open transaction         -> 47

The second of a tool alone: ends of that generation raise the epoch, so the marker is of an earlier transaction (KIP-1228).

A coordinator that was replaced while it was paused may send markers late, and a log knows coordinators only by the markers that
it has. The state of the topic may lag, so an old coordinator may get through; then the log decides by the transaction's number.

On a partition of `__consumer_offsets` the answer also waits until the offsets that were committed in the transaction are seen,
or dropped.

Invariant: a marker is answered without an error only when it, or the one that it repeats, is below the high watermark of a
leader that has led since.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.decisions.transaction_steps import marker_step
from echoless.broker.network.turns import work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.acknowledgement import AwaitedAcknowledgement, is_unacknowledged
from echoless.broker.records.append import StoredBatch, unless_deposed
from echoless.broker.records.in_flight import ACKS_ALL, ProduceParts, TopicKey
from echoless.protocol.control_records import NO_NUMBER, EndMarker, MarkerType, build_marker
from echoless.protocol.dedup import Reject
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.produce import PartitionProduced, TopicProduced
from echoless.protocol.record_batch import read_header
from echoless.storage.appended import Appended
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.metadata.topic import Topic
    from echoless.protocol.native.transactions import MarkerCodes, TransactionMarker
    from echoless.protocol.state_records.transaction_records import TransactionPartition

TRANSACTION_STATE: Final = "__transaction_state"
COMMITTED_WITHIN_S: Final = 20.0
"""Time that a marker has to be committed; less than its coordinator waits for the answer."""
NO_STATE_PARTITION: Final = -1
"""In markers of tools, which no coordinator has sent."""
_EPOCHS_RISE_FROM: Final = 2
"""The generation of the protocol from which on the end of a transaction raises the epoch."""

SettleOffsets = Callable[[Partition, int], Awaitable[ErrorCode]]
"""Returns once the offsets that transactions committed on a partition of `__consumer_offsets` are seen, or dropped.

Those of transactions whose markers are below the given offset, which is committed.
"""

_Outcome = PartitionProduced | StoredBatch


class MarkerWriter:
    """Writes the markers of one broker's partitions. Belongs to the event loop."""

    def __init__(
        self,
        parts: ProduceParts,
        topics: Mapping[str, Topic],
        settle_offsets: SettleOffsets | None = None,
    ) -> None:
        """`topics`: those of the cluster, by name. `settle_offsets`: None while no offsets are committed in transactions."""
        self._parts = parts
        self._topics = topics
        self.settle_offsets = settle_offsets

    async def write(self, markers: Sequence[TransactionMarker]) -> MarkerCodes:
        """Appends each marker to each of its partitions; returns their codes once all are committed or have failed."""
        rows: list[list[_Outcome]] = [[] for _ in markers]
        await work_in_turns(self._append_all(markers, rows))
        codes = await self._committed(rows)
        await self._settle(rows, codes)
        return codes

    def _append_all(
        self, markers: Sequence[TransactionMarker], rows: list[list[_Outcome]]
    ) -> Iterator[None]:
        """Appends one marker per step."""
        for marker, outcomes in zip(markers, rows, strict=True):
            is_outdated = self._is_outdated(marker)
            for partition in marker.partitions:
                if is_outdated:
                    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
                    outcomes.append(PartitionProduced(partition.partition, code))
                else:
                    outcomes.append(self._append(marker, partition))
                yield
            self._note(marker, outcomes)

    def _note(self, marker: TransactionMarker, outcomes: Sequence[_Outcome]) -> None:
        """Notes for each code the partitions that have it."""
        by_code: dict[ErrorCode, list[int]] = {}
        for place, one in enumerate(outcomes):
            code = ErrorCode.NONE if isinstance(one, StoredBatch) else one.error_code
            by_code.setdefault(code, []).append(place)
        for code, places in by_code.items():
            first, base_offset = outcomes[places[0]], -1
            if len(places) == 1 and isinstance(first, StoredBatch):
                base_offset = first.next_offset - 1
            self._parts.decisions.record_transaction(
                marker_step(
                    marker.transactional_id,
                    (marker.producer_id, marker.producer_epoch),
                    [marker.partitions[place] for place in places],
                    self._parts.clock.wall_ms(),
                    is_commit=marker.is_commit,
                    base_offset=base_offset,
                    error_code=code,
                )
            )

    def _is_outdated(self, marker: TransactionMarker) -> bool:
        """Whether another broker has become the coordinator since."""
        topic = self._topics.get(TRANSACTION_STATE)
        state = None if topic is None else topic.states.get(marker.state_partition)
        return state is not None and marker.coordinator_epoch < state.leader_epoch

    def _append(self, marker: TransactionMarker, wanted: TransactionPartition) -> _Outcome:
        parts, index = self._parts, wanted.partition
        now_ms = parts.clock.wall_ms()
        kind = MarkerType.COMMIT if marker.is_commit else MarkerType.ABORT
        end = EndMarker(kind, marker.coordinator_epoch, marker.number)
        batch = build_marker(end, marker.producer_id, marker.producer_epoch, now_ms)
        header = read_header(batch)
        try:
            partition = parts.find(_key_of(wanted), index)
            if _is_of_earlier(marker, partition):
                return PartitionProduced(index, ErrorCode.INVALID_PRODUCER_EPOCH)
            steady_ms = parts.clock.steady_ms()
            result = partition.append_for_coordinator(batch, header, steady_ms, now_ms)
        except KafkaError as error:
            return PartitionProduced(index, error.code)
        except StorageError as error:
            parts.fail_storage(error)
            return PartitionProduced(index, ErrorCode.KAFKA_STORAGE_ERROR)
        if isinstance(result, Reject):
            return PartitionProduced(index, result.code)
        if isinstance(result, Appended):
            parts.metrics.state_appended(header)
            last_offset = result.last_offset
        else:
            last_offset = result.original.last_offset
        produced = PartitionProduced(index, ErrorCode.NONE)
        return StoredBatch(partition, produced, last_offset + 1, partition.leader_epoch)

    async def _committed(self, rows: list[list[_Outcome]]) -> list[list[ErrorCode]]:
        """The code for each partition, once what was appended is committed or cannot be."""
        answered: list[TopicProduced] = []
        waits: list[StoredBatch] = []
        for outcomes in rows:
            produced: list[PartitionProduced] = []
            answered.append(("", produced))
            for outcome in outcomes:
                one = outcome
                if isinstance(one, StoredBatch):
                    one = unless_deposed(one)  # since its turn
                if isinstance(one, StoredBatch):
                    if is_unacknowledged(ACKS_ALL, one):
                        waits.append(one)
                    one = one.produced
                produced.append(one)
        if waits:
            deadlines = self._parts.deadlines
            answered = await AwaitedAcknowledgement(
                ACKS_ALL, answered, waits, COMMITTED_WITHIN_S, deadlines
            )
        return [[one.error_code for one in produced] for _, produced in answered]

    async def _settle(self, rows: list[list[_Outcome]], codes: list[list[ErrorCode]]) -> None:
        """Waits for the groups where a marker is on a partition of theirs; replaces codes by what they say."""
        if self.settle_offsets is None:
            return
        for outcomes, of_one in zip(rows, codes, strict=True):
            for place, outcome in enumerate(outcomes):
                if (
                    isinstance(outcome, StoredBatch)
                    and of_one[place] is ErrorCode.NONE
                    and outcome.partition.topic == CONSUMER_OFFSETS
                ):
                    of_one[place] = await self.settle_offsets(
                        outcome.partition, outcome.next_offset
                    )


def _is_of_earlier(marker: TransactionMarker, partition: Partition) -> bool:
    """Whether a marker that has no number says by its epoch that it ends another transaction than the one that is open."""
    if marker.number != NO_NUMBER or marker.client_version < _EPOCHS_RISE_FROM:
        return False
    producers = partition.log.producers
    entry = producers.get(marker.producer_id)
    return (
        entry is not None
        and entry.producer_epoch == marker.producer_epoch
        and producers.open_transaction(marker.producer_id) is not None
    )


def _key_of(wanted: TransactionPartition) -> TopicKey:
    """The topic's id: what is meant for a deleted topic must not reach its successor. Tools have only a name."""
    return uuid.UUID(bytes=wanted.topic_id) if any(wanted.topic_id) else wanted.topic
