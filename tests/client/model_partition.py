"""One replicated partition that forgets, fails over and refuses, judged by `protocol/dedup.py`.

`Personality.ECHOLESS` answers as our broker does. `KAFKA` has its weaknesses: an old repeat is 45, an
unknown producer may begin anywhere, and a new leader remembers one batch of each producer.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from echoless.client.answers import PartitionProduceResponse
from echoless.client.sequenced_batch import Identity
from echoless.client.sequencer_actions import LeaderEntry
from echoless.protocol.dedup import (
    Append,
    Duplicate,
    PartitionRules,
    ProducerEntry,
    Reject,
    UnknownProducerId,
    commit,
    decide,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader


class Personality(enum.Enum):
    ECHOLESS = "echoless"
    KAFKA = "kafka"


class Request(NamedTuple):
    """One batch on the wire. `values` are the numbers of its records in the order of their writing."""

    identity: Identity
    base_sequence: int
    values: tuple[int, ...]

    @property
    def header(self) -> BatchHeader:
        return BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=2,
            crc=hash(self.values),
            attributes=0,
            last_offset_delta=len(self.values) - 1,
            base_timestamp=0,
            max_timestamp=0,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=len(self.values),
        )


class ModelPartition:
    """The log is the list of the records' values; below `committed` nothing is ever lost."""

    def __init__(self, personality: Personality, window: int) -> None:
        self.personality = personality
        self.window = window
        self.batches: list[Request] = []
        self.committed = 0
        """Batches that every replica has."""
        self.entries: dict[int, ProducerEntry] = {}
        self._has_held_records = False

    @property
    def values(self) -> list[int]:
        return [value for batch in self.batches for value in batch.values]

    @property
    def committed_values(self) -> list[int]:
        return [value for batch in self.batches[: self.committed] for value in batch.values]

    def produce(self, request: Request, *, commits: bool) -> PartitionProduceResponse:
        """Appends or not; without `commits` the answer is that it took too long."""
        producer_id, header = request.identity.producer_id, request.header
        decision = decide(self.entries.get(producer_id), header, self._rules())
        match decision:
            case Append():
                offset = len(self.values)
                self.batches.append(request)
                self.entries[producer_id] = self._committed_entry(request, offset)
                self._has_held_records = True
            case Duplicate(original):
                offset = original.base_offset
            case Reject(ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                return self._answer_old_repeat(commits=commits)
            case Reject(code):
                return PartitionProduceResponse(code)
        if not commits:
            return PartitionProduceResponse(ErrorCode.REQUEST_TIMED_OUT, offset)
        self.committed = len(self.batches)
        return PartitionProduceResponse(ErrorCode.NONE, offset)

    def _answer_old_repeat(self, *, commits: bool) -> PartitionProduceResponse:
        """Echoless waits for the commit of what was repeated, and then says 46."""
        if self.personality is Personality.KAFKA:
            return PartitionProduceResponse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if not commits:
            return PartitionProduceResponse(ErrorCode.REQUEST_TIMED_OUT)
        self.committed = len(self.batches)
        return PartitionProduceResponse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

    def describe(self, producer_id: int) -> LeaderEntry | None:
        entry = self.entries.get(producer_id)
        return None if entry is None else LeaderEntry(entry.producer_epoch, entry.last_sequence)

    def fail_over(self, kept: int) -> None:
        """A replica that has `kept` of the batches that are not committed leads from now on."""
        del self.batches[self.committed + kept :]
        self.committed = len(self.batches)
        self.entries.clear()
        offset = 0
        for batch in self.batches:
            self.entries[batch.identity.producer_id] = self._committed_entry(batch, offset)
            offset += len(batch.values)
        if self.personality is Personality.KAFKA:
            for entry in self.entries.values():
                entry.batches = entry.batches[-1:]

    def lose_records(self, batch_count: int) -> None:
        """An unclean election: committed records are gone."""
        self.committed = max(self.committed - batch_count, 0)
        self.fail_over(0)

    def forget(self) -> None:
        """Every producer expires."""
        self.entries.clear()

    def _rules(self) -> PartitionRules:
        accepts = self.personality is Personality.KAFKA
        unknown = UnknownProducerId.ACCEPT if accepts else UnknownProducerId.REJECT
        return PartitionRules(self._has_held_records, unknown)

    def _committed_entry(self, request: Request, offset: int) -> ProducerEntry:
        entry = self.entries.get(request.identity.producer_id)
        return commit(entry, request.header, offset, 0, self.window)
