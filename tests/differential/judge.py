"""Compares what the two brokers answered to one history, and what they stored.

Both models (`reference.py`) follow the history; the first answer that its model did not predict,
or disagreement of the models without a name, ends the comparison of that history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from tests.differential.differences import (
    EXPIRED_BY_RECORD_TIME,
    IDS_AT_ONCE,
    SNAPSHOTS_LOST,
    Disagreement,
    explain,
)
from tests.differential.generate import facts_of
from tests.differential.history import (
    Describe,
    History,
    InitProducerId,
    Part,
    Produce,
    Step,
    TopicKind,
)
from tests.differential.play import Answer, Row
from tests.differential.reference import (
    CORRUPT_MESSAGE,
    DECIDED,
    INVALID_REQUEST,
    KAFKA,
    NONE,
    Facts,
    Partition,
    Rules,
    Verdict,
)
from tests.support.raw_batches import LOG_APPEND_TIME, StoredBatch, split_log

_LOADING = 14


class MismatchError(Exception):
    """The brokers, or a broker and its model, disagree, and no named difference says why."""


class Pair(NamedTuple):
    """The same thing of both brokers."""

    kafka: Answer
    echoless: Answer


@dataclass(slots=True)
class _Side:
    """One broker's model of one slot."""

    name: str
    partition: Partition

    def expect(
        self, verdict: Verdict, row: Row, kind: TopicKind, batch: Facts, version: int
    ) -> None:
        """Raises MismatchError unless `row` says what `verdict` means."""
        start = 0 if version >= 5 else -1
        if verdict.error in (INVALID_REQUEST, CORRUPT_MESSAGE):
            wanted = Row(verdict.error, -1, -1, -1)
        elif verdict.error != NONE:
            wanted = Row(verdict.error, -1, -1, start)
        elif verdict.original is not None:
            original = verdict.original
            time = row.log_append_time if original.timestamp is None else original.timestamp
            wanted = Row(NONE, original.base_offset, time, start)
        else:
            is_stamped = kind is TopicKind.APPEND_TIME and row.log_append_time > 0
            time = row.log_append_time if is_stamped else -1
            wanted = Row(NONE, self.partition.log_end_offset, time, start)
        if row != wanted:
            raise MismatchError(
                f"{self.name} answered {tuple(row)}, its model says {tuple(wanted)}"
            )


@dataclass(slots=True)
class _SlotState:
    kind: TopicKind
    kafka: _Side
    echoless: _Side
    parted: dict[int, str] = field(default_factory=dict)
    """By producer id: the difference that made its two entries unequal."""


class Judge:
    """Follows one history."""

    def __init__(self, history: History, echoless_rules: Rules, kafka_rules: Rules = KAFKA) -> None:
        self.counts: Counter[str] = Counter()
        """How often each named difference was the reason."""
        self.answers_compared = 0
        self._slots = [
            _SlotState(
                kind,
                _Side("Kafka", Partition(kafka_rules)),
                _Side("Echoless", Partition(echoless_rules)),
            )
            for kind in history.slots
        ]

    def judge(self, step: Step, pair: Pair) -> None:
        """Raises MismatchError at the first answer that nothing explains."""
        self.answers_compared += 1
        if isinstance(step, Produce):
            self._judge_produce(step, pair)
        elif isinstance(step, Describe):
            self._judge_producers(step, pair)
        else:
            self._judge_init(step, pair)

    def restart(self, now_ms: int, expiration_ms: int, *, lost_snapshots: bool) -> None:
        """Both brokers were stopped and started."""
        for slot in self._slots:
            for side in (slot.kafka, slot.echoless):
                side.partition.restart(now_ms, expiration_ms, lost_snapshots=lost_snapshots)
            reason = SNAPSHOTS_LOST if lost_snapshots else EXPIRED_BY_RECORD_TIME
            for producer_id in slot.echoless.partition.entries:
                if producer_id not in slot.kafka.partition.entries:
                    slot.parted.setdefault(producer_id, reason)

    def judge_log(
        self, slot: int, kafka: Sequence[StoredBatch], echoless: Sequence[StoredBatch]
    ) -> None:
        """Compares what is stored with what the models took in, byte for byte."""
        state = self._slots[slot]
        is_stamped = state.kind is TopicKind.APPEND_TIME
        for side, stored in ((state.kafka, kafka), (state.echoless, echoless)):
            wanted = [_rebased(*entry) for entry in side.partition.stored]
            if any(not batch.crc_is_right for batch in stored):
                raise MismatchError(f"{side.name} stored a wrong CRC in slot {slot}")
            found = [batch.masked(log_append_time=is_stamped) for batch in stored]
            if found != [batch.masked(log_append_time=is_stamped) for batch in wanted]:
                raise MismatchError(_log_mismatch(side.name, slot, stored, wanted))
            self.answers_compared += 1

    def _judge_produce(self, step: Produce, pair: Pair) -> None:
        by_slot: dict[int, list[Part]] = {}
        for part in step.parts:
            by_slot.setdefault(part.slot, []).append(part)
        if step.acks == 0:
            self._judge_unanswered(step, pair)
            return
        if set(pair.kafka.rows) != set(by_slot) or set(pair.echoless.rows) != set(by_slot):
            raise MismatchError("a partition has no row, or one too many")
        for slot, parts in by_slot.items():
            rows = pair.kafka.rows[slot], pair.echoless.rows[slot]
            if not self._is_refused_alike(parts, *rows):
                self._judge_parts(step.version, self._slots[slot], parts, rows)

    def _is_refused_alike(self, parts: Sequence[Part], kafka: Row, echoless: Row) -> bool:
        """Whether a check before the decision refused it; True means: nothing was stored."""
        if kafka.error in DECIDED and parts[0].slot >= 0:
            return False
        rules = self._slots[max(parts[0].slot, 0)].echoless.partition.rules
        if len(parts) > 1 and rules.refuses_listed_twice:
            return False
        if parts[0].has_bytes_left_over and rules.refuses_bytes_left_over:
            return False
        if kafka != echoless:
            raise MismatchError(
                f"Kafka refused with {tuple(kafka)}, Echoless says {tuple(echoless)}"
            )
        return True

    def _judge_parts(
        self, version: int, slot: _SlotState, parts: Sequence[Part], rows: tuple[Row, Row]
    ) -> None:
        part = parts[-1]  # Kafka: the last of a partition listed twice wins
        batch = facts_of(part.records)
        if batch is None:
            raise MismatchError(f"Kafka took {part.note} with {tuple(rows[0])}")
        kafka, echoless = self._verdicts(slot, parts, batch, rows[0])
        if kafka.error in DECIDED:
            slot.kafka.expect(kafka, rows[0], slot.kind, batch, version)
        slot.echoless.expect(echoless, rows[1], slot.kind, batch, version)
        self._name_difference(slot, batch, kafka, echoless)
        self._commit(slot, part, batch, (kafka, echoless), rows)

    def _verdicts(
        self, slot: _SlotState, parts: Sequence[Part], batch: Facts, kafka_row: Row
    ) -> tuple[Verdict, Verdict]:
        """What the two models say. Kafka's own refusal stands where a check came before."""
        kafka = slot.kafka.partition.decide(batch)
        if kafka_row.error not in DECIDED:
            kafka = Verdict(kafka_row.error)
        rules = slot.echoless.partition.rules
        if len(parts) > 1 and rules.refuses_listed_twice:
            return kafka, Verdict(INVALID_REQUEST)
        if parts[-1].has_bytes_left_over and rules.refuses_bytes_left_over:
            return kafka, Verdict(CORRUPT_MESSAGE)
        if kafka_row.error not in DECIDED:
            return kafka, kafka
        return kafka, slot.echoless.partition.decide(batch)

    def _judge_unanswered(self, step: Produce, pair: Pair) -> None:
        """Acks 0: an error shows in the connection being closed."""
        verdicts: list[tuple[Verdict, Verdict]] = []
        for part in step.parts:
            if part.slot < 0:
                verdicts.append((Verdict(3), Verdict(3)))
                continue
            batch = facts_of(part.records)
            assert batch is not None
            slot = self._slots[part.slot]
            pair_of_verdicts = (
                slot.kafka.partition.decide(batch),
                slot.echoless.partition.decide(batch),
            )
            verdicts.append(pair_of_verdicts)
            self._name_difference(slot, batch, *pair_of_verdicts)
            self._commit(slot, part, batch, pair_of_verdicts, None)
        for name, answer, errors in (
            ("Kafka", pair.kafka, [kafka.error for kafka, _ in verdicts]),
            ("Echoless", pair.echoless, [echoless.error for _, echoless in verdicts]),
        ):
            if answer.is_open == any(errors):
                raise MismatchError(
                    f"{name}: open={answer.is_open} after acks 0 with errors {errors}"
                )

    def _name_difference(
        self, slot: _SlotState, batch: Facts, kafka: Verdict, echoless: Verdict
    ) -> None:
        if kafka.error == echoless.error and kafka.appends == echoless.appends:
            return
        case = Disagreement(
            kafka=kafka,
            echoless=echoless,
            kafka_partition=slot.kafka.partition,
            echoless_partition=slot.echoless.partition,
            producer_id=batch.producer_id,
            parted_by=slot.parted.get(batch.producer_id),
        )
        name = explain(case)
        if name is None:
            raise MismatchError(f"the models disagree without a reason: {kafka} and {echoless}")
        self.counts[name] += 1
        if kafka.appends != echoless.appends and batch.producer_id >= 0:
            slot.parted.setdefault(batch.producer_id, name)

    def _commit(
        self,
        slot: _SlotState,
        part: Part,
        batch: Facts,
        verdicts: tuple[Verdict, Verdict],
        rows: tuple[Row, Row] | None,
    ) -> None:
        """Lets each model take in what its broker took in."""
        records = as_stored(part.records or b"", slot.kind)
        for index, side in enumerate((slot.kafka, slot.echoless)):
            if verdicts[index].appends:
                timestamp: int | None = batch.timestamp
                if slot.kind is TopicKind.APPEND_TIME:
                    timestamp = None if rows is None else rows[index].log_append_time
                side.partition.append(batch, records, timestamp)
        self._rejoin(slot, batch.producer_id)

    def _rejoin(self, slot: _SlotState, producer_id: int) -> None:
        """Forgets a parting when both brokers know the same of the producer again."""
        views = []
        for side in (slot.kafka, slot.echoless):
            entry = side.partition.entries.get(producer_id)
            window = [] if entry is None else [batch[:2] for batch in entry.window]
            views.append(entry and (entry.epoch, window))
        if views[0] == views[1]:
            slot.parted.pop(producer_id, None)

    def _judge_producers(self, step: Describe, pair: Pair) -> None:
        slot = self._slots[step.slot]
        for side, answer in ((slot.kafka, pair.kafka), (slot.echoless, pair.echoless)):
            if answer.error != NONE:
                raise MismatchError(f"{side.name} answered error {answer.error}")
            wanted = sorted(
                (producer_id, entry.epoch, entry.last_sequence, entry.window[-1].timestamp)
                for producer_id, entry in side.partition.entries.items()
            )
            found = [row[:4] for row in answer.producers]
            if len(found) != len(wanted) or not all(map(_is_row, found, wanted)):
                raise MismatchError(f"{side.name} knows {found}, its model knows {wanted}")
            if any(row[4:] != (-1, -1) for row in answer.producers):
                raise MismatchError(f"{side.name} tells of transactions: {answer.producers}")

    def _judge_init(self, step: InitProducerId, pair: Pair) -> None:
        if pair.kafka.error == _LOADING and pair.echoless.error == NONE:
            self.counts[IDS_AT_ONCE] += 1
            return
        kafka = (pair.kafka.error, pair.kafka.producer_epoch)
        echoless = (pair.echoless.error, pair.echoless.producer_epoch)
        if kafka != echoless:
            raise MismatchError(f"Kafka answered {kafka}, Echoless {echoless}")


def as_stored(records: bytes, kind: TopicKind) -> bytes:
    """The first batch as a broker stores it, but for what `StoredBatch.masked` leaves out.

    On a topic with create time Kafka clears the bit that says otherwise.
    """
    batch = bytearray(split_log(records)[0].data)
    if kind is not TopicKind.APPEND_TIME and batch[22] & LOG_APPEND_TIME:
        batch[22] &= ~LOG_APPEND_TIME
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def _is_row(found: tuple[int, ...], wanted: tuple[int, int, int, int | None]) -> bool:
    return found[:3] == wanted[:3] and wanted[3] in (found[3], None)


def _rebased(base_offset: int, records: bytes) -> StoredBatch:
    return split_log(base_offset.to_bytes(8, "big") + records[8:])[0]


def _log_mismatch(
    name: str, slot: int, stored: Sequence[StoredBatch], wanted: Sequence[StoredBatch]
) -> str:
    lines = [f"{name} stored in slot {slot} other batches than it took in:"]
    for index in range(max(len(stored), len(wanted))):
        pair = [batches[index] if index < len(batches) else None for batches in (stored, wanted)]
        shown = [f"{batch.base_offset} {batch.data.hex()}" if batch else "none" for batch in pair]
        if shown[0] != shown[1]:
            lines.append(f"  batch {index}: stored {shown[0]}\n           taken in {shown[1]}")
    return "\n".join(lines[:6])
