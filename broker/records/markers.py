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

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.decisions.transaction_steps import PARTITIONS_MAX, marker_step
from echoless.broker.network.turns import work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.acknowledgement import AwaitedAcknowledgement, is_unacknowledged
from echoless.broker.records.append import StoredBatch, unless_deposed
from echoless.broker.records.in_flight import ACKS_ALL, ProduceParts, TopicKey
from echoless.protocol.control_records import NO_NUMBER, EndMarker, MarkerType, build_marker
from echoless.protocol.dedup import Reject
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.produce import PartitionProduced, TopicProduced
from echoless.protocol.record_batch import BatchHeader, read_header
from echoless.protocol.state_records.transaction_records import NO_TOPIC_ID, uuid_of
from echoless.storage.appended import Appended
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.metadata.topic import Topic
    from echoless.protocol.native.transactions import MarkerCodes, TransactionMarker
    from echoless.protocol.state_records.transaction_records import TransactionPartition

TRANSACTION_STATE: Final = "__transaction_state"
COMMITTED_WITHIN_S: Final = 8.0
"""Time that a marker has to be committed; less than its coordinator waits for the answer. It is sent again then, and is known."""
NO_STATE_PARTITION: Final = -1
"""In markers of tools, which no coordinator has sent."""
_EPOCHS_RISE_FROM: Final = 2
"""The generation of the protocol from which on the end of a transaction raises the epoch."""

SettleOffsets = Callable[[Partition, int], Awaitable[ErrorCode]]
"""Returns once the offsets that transactions committed on a partition of `__consumer_offsets` are seen, or dropped.

Those of transactions whose markers are below the given offset, which is committed.
"""

_NONE: Final = ErrorCode.NONE
"""Read once: a member of an enum takes 0.1 to 0.2 us in Python 3.11."""
_APPENDED_AT_ONCE: Final = 10
"""Partitions of one marker that are appended in a step: 0.3 ms."""
_WRITTEN: Final = PartitionProduced(0, _NONE)
_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class; see `protocol/known/__init__.py`."""
_Outcome = ErrorCode | StoredBatch


class _Built(NamedTuple):
    """A marker with its batch, which is the same on all partitions: the leader stamps offset and epoch."""

    marker: TransactionMarker
    end: EndMarker
    batch: bytes
    header: BatchHeader
    steady_ms: int
    """When it was built, by the data directory's clock."""


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
        """Appends some markers per step."""
        for marker, outcomes in zip(markers, rows, strict=True):
            if self._is_outdated(marker):
                fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
                outcomes.extend([fenced] * len(marker.partitions))
            else:
                append = partial(self._append, self._built(marker))
                for first in range(0, len(marker.partitions), _APPENDED_AT_ONCE):
                    some = marker.partitions[first : first + _APPENDED_AT_ONCE]
                    outcomes.extend(map(append, some))
                    yield
            self._note(marker, outcomes)

    def _note(self, marker: TransactionMarker, outcomes: Sequence[_Outcome]) -> None:
        """Notes for each code the partitions that have it."""
        by_code: dict[ErrorCode, list[int]] = {}
        for place, one in enumerate(outcomes):
            code = _NONE if isinstance(one, StoredBatch) else one
            by_code.setdefault(code, []).append(place)
        for code, places in by_code.items():
            first, base_offset = outcomes[places[0]], -1
            if len(places) == 1 and isinstance(first, StoredBatch):
                base_offset = first.next_offset - 1
            self._parts.decisions.record_transaction(
                *(marker_step, marker, places, self._parts.clock.wall_ms(), base_offset, code),
                is_large=len(marker.partitions) > PARTITIONS_MAX,
            )

    def _is_outdated(self, marker: TransactionMarker) -> bool:
        """Whether another broker has become the coordinator since."""
        topic = self._topics.get(TRANSACTION_STATE)
        state = None if topic is None else topic.states.get(marker.state_partition)
        return state is not None and marker.coordinator_epoch < state.leader_epoch

    def _built(self, marker: TransactionMarker) -> _Built:
        kind = MarkerType.COMMIT if marker.is_commit else MarkerType.ABORT
        end = EndMarker(kind, marker.coordinator_epoch, marker.number)
        now_ms = self._parts.clock.wall_ms()
        batch = build_marker(end, marker.producer_id, marker.producer_epoch, now_ms)
        return _Built(marker, end, batch, read_header(batch), self._parts.clock.steady_ms())

    def _append(self, built: _Built, wanted: TransactionPartition) -> _Outcome:
        parts = self._parts
        marker, end, batch, header, steady_ms = built
        try:
            partition = parts.find(_key_of(wanted), wanted.partition)
            if end.number == NO_NUMBER and _is_of_earlier(marker, partition):
                return ErrorCode.INVALID_PRODUCER_EPOCH
            now_ms = header.max_timestamp
            result = partition.append_for_coordinator(batch, header, steady_ms, now_ms, end)
        except KafkaError as error:
            return error.code
        except StorageError as error:
            parts.fail_storage(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(result, Reject):
            return result.code
        if isinstance(result, Appended):
            parts.metrics.state_appended(header)
            last_offset = result.last_offset
        else:
            last_offset = result.original.last_offset
        fields = (partition, _WRITTEN, last_offset + 1, partition.leader_epoch)
        return _new(StoredBatch, fields)

    async def _committed(self, rows: list[list[_Outcome]]) -> list[list[ErrorCode]]:
        """The code for each partition, once what was appended is committed or cannot be."""
        codes: list[list[ErrorCode]] = []
        waits: list[StoredBatch] = []
        places: list[tuple[list[ErrorCode], int]] = []
        for outcomes in rows:
            of_one: list[ErrorCode] = []
            codes.append(of_one)
            for outcome in outcomes:
                if not isinstance(outcome, StoredBatch):
                    of_one.append(outcome)
                    continue
                stored = unless_deposed(outcome)  # since its turn
                if isinstance(stored, StoredBatch) and is_unacknowledged(ACKS_ALL, stored):
                    places.append((of_one, len(of_one)))
                    produced = PartitionProduced(stored.partition.index, _NONE)  # of its own
                    waits.append(stored._replace(produced=produced))
                of_one.append(_NONE if isinstance(stored, StoredBatch) else stored.error_code)
        if waits:
            topics: list[TopicProduced] = [("", [one.produced for one in waits])]
            deadlines = self._parts.deadlines
            [(_, answered)] = await AwaitedAcknowledgement(
                ACKS_ALL, topics, waits, COMMITTED_WITHIN_S, deadlines
            )
            for (of_one, place), one in zip(places, answered, strict=True):
                of_one[place] = one.error_code
        return codes

    async def _settle(self, rows: list[list[_Outcome]], codes: list[list[ErrorCode]]) -> None:
        """Waits for the groups where a marker is on a partition of theirs; replaces codes by what they say."""
        if self.settle_offsets is None:
            return
        for outcomes, of_one in zip(rows, codes, strict=True):
            for place, outcome in enumerate(outcomes):
                if (
                    isinstance(outcome, StoredBatch)
                    and outcome.partition.topic == CONSUMER_OFFSETS
                    and of_one[place] is _NONE
                ):
                    of_one[place] = await self.settle_offsets(
                        outcome.partition, outcome.next_offset
                    )


def _is_of_earlier(marker: TransactionMarker, partition: Partition) -> bool:
    """Whether a marker without a number says by its epoch that it ends another transaction than the one that is open."""
    if marker.client_version < _EPOCHS_RISE_FROM:
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
    return wanted.topic if wanted.topic_id == NO_TOPIC_ID else uuid_of(wanted.topic_id)
