"""Compares what the two brokers answered to one history, and what they stored.

Both models (`reference.py`) follow the history; the first answer that its model did not predict,
or disagreement of the models without a name, ends the comparison of that history. What a check
before the de-duplication decision refuses is not modelled: there the answers must be equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.oracle.game import MismatchError
from tests.oracle.producers.differences import (
    BAD_FIELD,
    EXPIRED_BY_RECORD_TIME,
    IDS_AT_ONCE,
    LISTED_TWICE,
    POISON,
    POISONED,
    REFUSALS,
    SNAPSHOTS_LOST,
    UNREAD_FIELDS,
    Disagreement,
    Refusal,
    explain,
)
from tests.oracle.producers.expect import (
    as_stored,
    check_log,
    check_producers,
    check_row,
    refused_row,
    row_of,
)
from tests.oracle.producers.generate import facts_of
from tests.oracle.producers.history import (
    Describe,
    InitProducerId,
    Part,
    Produce,
    ProducersHistory,
    Step,
    TopicKind,
)
from tests.oracle.producers.play import Answer, Row
from tests.oracle.producers.reference import DECIDED, KAFKA, NONE, Facts, Partition, Rules, Verdict
from tests.support.raw_batches import StoredBatch

_NAMES = ("Kafka", "Echoless")
_LOADING = 14
_UNKNOWN_TOPIC_OR_PARTITION = 3


class Pair(NamedTuple):
    """The same thing of both brokers."""

    kafka: Answer
    echoless: Answer


@dataclass(slots=True)
class _Slot:
    kind: TopicKind
    models: tuple[Partition, Partition]
    """Kafka's and Echoless'."""
    parted: dict[int, str] = field(default_factory=dict)
    """By producer id: the difference that made its two entries unequal."""


@dataclass(slots=True)
class _Case:
    """One partition of one request."""

    slot: _Slot
    version: int
    part: Part
    batch: Facts
    rows: tuple[Row, Row] | None
    """None where nothing is answered (acks 0)."""


def _rules_of(kind: TopicKind, rules: Rules) -> Rules:
    """With append time the stored bytes are the broker's, and say nothing about the client's."""
    is_compared = rules.refuses_other_records and kind is not TopicKind.APPEND_TIME
    return replace(rules, refuses_other_records=is_compared)


class Judge:
    """Follows one history."""

    def __init__(
        self, history: ProducersHistory, echoless_rules: Rules, kafka_rules: Rules = KAFKA
    ) -> None:
        self.counts: Counter[str] = Counter()
        """How often each named difference was the reason."""
        self.answers_compared = 0
        self._refuses_more = echoless_rules.refuses_more
        self._slots = [
            _Slot(kind, (Partition(kafka_rules), Partition(_rules_of(kind, echoless_rules))))
            for kind in history.slots
        ]

    def judge(self, step: Step, pair: Pair) -> None:
        """Raises MismatchError at the first answer that nothing explains."""
        self.answers_compared += 1
        if isinstance(step, Produce):
            judge_produce = self._judge_unanswered if step.acks == 0 else self._judge_produce
            judge_produce(step, pair)
        elif isinstance(step, Describe):
            self._judge_producers(step, pair)
        else:
            self._judge_init(step, pair)

    def restart(self, now_ms: int, expiration_ms: int, *, lost_snapshots: bool) -> None:
        """Both brokers were stopped and started."""
        reason = SNAPSHOTS_LOST if lost_snapshots else EXPIRED_BY_RECORD_TIME
        for slot in self._slots:
            for model in slot.models:
                model.restart(now_ms, expiration_ms, lost_snapshots=lost_snapshots)
            kafka, echoless = slot.models
            for producer_id in echoless.entries.keys() - kafka.entries.keys():
                slot.parted.setdefault(producer_id, reason)

    def judge_log(self, slot: int, logs: tuple[Sequence[StoredBatch], ...]) -> None:
        """Compares both logs with what the models took in."""
        state = self._slots[slot]
        for name, model, stored in zip(_NAMES, state.models, logs, strict=True):
            check_log(f"{name}, slot {slot}", model, state.kind, stored)
            self.answers_compared += 1

    def _judge_produce(self, step: Produce, pair: Pair) -> None:
        by_slot = {part.slot: part for part in step.parts}  # as in Kafka, the last one wins
        if set(pair.kafka.rows) != set(by_slot) or set(pair.echoless.rows) != set(by_slot):
            raise MismatchError("a partition has no row, or one too many")
        is_poisoned = _is_refused_whole(step, pair.kafka)
        for number, part in by_slot.items():
            rows = pair.kafka.rows[number], pair.echoless.rows[number]
            flaw = LISTED_TWICE if _is_listed_twice(step, number) else part.flaw
            if number < 0:
                self._judge_stray(rows, is_poisoned=is_poisoned)
            elif is_poisoned and not flaw:
                self._judge_poisoned(self._case(step, part, rows))
            elif flaw == BAD_FIELD and self._refuses_more:
                self._judge_bad_field(self._case(step, part, rows))
            elif flaw in REFUSALS and self._refuses_more:
                self._judge_refusal(REFUSALS[flaw], part, self._slots[number], rows, step.version)
            elif rows[0].error not in DECIDED:
                _check_equal(rows)
            else:
                self._judge_decision(self._case(step, part, rows))

    def _case(self, step: Produce, part: Part, rows: tuple[Row, Row] | None) -> _Case:
        batch = facts_of(part.records)
        if batch is None:
            raise MismatchError(f"a caller took {part.note}: {rows}")
        return _Case(self._slots[part.slot], step.version, part, batch, rows)

    def _judge_stray(self, rows: tuple[Row, Row], *, is_poisoned: bool) -> None:
        if is_poisoned and self._refuses_more and rows[1].error == _UNKNOWN_TOPIC_OR_PARTITION:
            self.counts[POISONED] += 1
        else:
            _check_equal(rows)

    def _judge_poisoned(self, case: _Case) -> None:
        """Kafka refused the whole request over another partition of it."""
        assert case.rows is not None
        if not self._refuses_more:
            _check_equal(case.rows)
            return
        verdict = case.slot.models[1].decide(case.batch)
        self._settle(case, (Verdict(case.rows[0].error), verdict), POISONED, (1,))

    def _judge_bad_field(self, case: _Case) -> None:
        """Kafka reads every field of every record."""
        assert case.rows is not None
        if case.batch.base_sequence == 0:
            _check_equal(case.rows)
            return
        verdict = case.slot.models[1].decide(case.batch)
        self._settle(case, (Verdict(case.rows[0].error), verdict), UNREAD_FIELDS, (1,))

    def _judge_refusal(
        self, refusal: Refusal, part: Part, slot: _Slot, rows: tuple[Row, Row], version: int
    ) -> None:
        kafka, echoless = rows
        if kafka == echoless and kafka.error != NONE:
            return
        wanted = refused_row(refusal.error, version, tells_log_start=refusal.tells_log_start)
        check_row("Echoless", echoless, wanted)
        if refusal.kafka_error is not None:
            if kafka.error != refusal.kafka_error:
                raise MismatchError(f"Kafka answered {tuple(kafka)} to {part.note}")
            self.counts[refusal.name] += 1
            return
        batch = facts_of(part.records)
        assert batch is not None
        case = _Case(slot, version, part, batch, rows)
        verdict = slot.models[0].decide(batch)
        self._settle(case, (verdict, Verdict(refusal.error)), refusal.name, (0,))

    def _judge_decision(self, case: _Case) -> None:
        kafka, echoless = (model.decide(case.batch) for model in case.slot.models)
        name = self._explain(case, kafka, echoless)
        self._settle(case, (kafka, echoless), name, (0, 1))

    def _judge_unanswered(self, step: Produce, pair: Pair) -> None:
        """Acks 0: an error shows in the connection being closed."""
        errors: tuple[list[int], list[int]] = ([], [])
        for part in step.parts:
            if part.slot < 0:
                verdicts = (Verdict(_UNKNOWN_TOPIC_OR_PARTITION),) * 2
            else:
                case = self._case(step, part, None)
                kafka, echoless = (model.decide(case.batch) for model in case.slot.models)
                verdicts = (kafka, echoless)
                self._settle(case, verdicts, self._explain(case, kafka, echoless), ())
            for side in (0, 1):
                errors[side].append(verdicts[side].error)
        for side, answer in enumerate(pair):
            if answer.is_open == any(errors[side]):
                raise MismatchError(
                    f"{_NAMES[side]}: open={answer.is_open} after acks 0 with errors {errors[side]}"
                )

    def _explain(self, case: _Case, kafka: Verdict, echoless: Verdict) -> str | None:
        """The name of the difference, None where there is none to explain."""
        if kafka.error == echoless.error and kafka.appends == echoless.appends:
            return None
        producer_id = case.batch.producer_id
        name = explain(
            Disagreement(
                kafka=kafka,
                echoless=echoless,
                kafka_partition=case.slot.models[0],
                echoless_partition=case.slot.models[1],
                producer_id=producer_id,
                parted_by=case.slot.parted.get(producer_id),
            )
        )
        if name is None:
            raise MismatchError(f"the models disagree without a reason: {kafka} and {echoless}")
        return name

    def _settle(
        self,
        case: _Case,
        verdicts: tuple[Verdict, Verdict],
        name: str | None,
        sides_compared: tuple[int, ...],
    ) -> None:
        """Compares the answers of these sides with the verdicts, and lets the models follow."""
        slot = case.slot
        for side in sides_compared:
            assert case.rows is not None
            answered = case.rows[side]
            wanted = row_of(verdicts[side], slot.models[side], slot.kind, case.version, answered)
            check_row(_NAMES[side], answered, wanted)
        if name is not None and verdicts[0] != verdicts[1]:
            self.counts[name] += 1
            if verdicts[0].appends != verdicts[1].appends and case.batch.producer_id >= 0:
                slot.parted.setdefault(case.batch.producer_id, name)
        for side in (0, 1):
            if verdicts[side].appends:
                self._append(case, side)
        self._rejoin(slot, case.batch.producer_id)

    def _append(self, case: _Case, side: int) -> None:
        timestamp: int | None = case.batch.timestamp
        if case.slot.kind is TopicKind.APPEND_TIME:
            timestamp = None if case.rows is None else case.rows[side].log_append_time
        records = as_stored(case.part.records or b"", case.slot.kind)
        case.slot.models[side].append(case.batch, records, timestamp)

    def _rejoin(self, slot: _Slot, producer_id: int) -> None:
        """Forgets a parting when both brokers know the same of the producer again."""
        views = []
        for model in slot.models:
            entry = model.entries.get(producer_id)
            views.append(entry and (entry.epoch, [batch[:2] for batch in entry.window]))
        if views[0] == views[1]:
            slot.parted.pop(producer_id, None)

    def _judge_producers(self, step: Describe, pair: Pair) -> None:
        for name, model, answer in zip(_NAMES, self._slots[step.slot].models, pair, strict=True):
            if answer.error != NONE:
                raise MismatchError(f"{name} answered error {answer.error}")
            check_producers(name, model, answer.producers)

    def _judge_init(self, step: InitProducerId, pair: Pair) -> None:
        is_loading = [answer.error == _LOADING for answer in pair]
        if is_loading[0] or (is_loading[1] and not self._refuses_more):
            self.counts[IDS_AT_ONCE] += 1  # how long Kafka takes depends on its controller
            return
        kafka = (pair.kafka.error, pair.kafka.producer_epoch)
        echoless = (pair.echoless.error, pair.echoless.producer_epoch)
        if kafka != echoless:
            raise MismatchError(f"Kafka answered {kafka}, Echoless {echoless}")


def _check_equal(rows: tuple[Row, Row]) -> None:
    if rows[0] != rows[1]:
        raise MismatchError(f"Kafka refused with {tuple(rows[0])}, Echoless says {tuple(rows[1])}")


def _is_listed_twice(step: Produce, slot: int) -> bool:
    return sum(part.slot == slot for part in step.parts) > 1


def _is_refused_whole(step: Produce, kafka: Answer) -> bool:
    """Whether Kafka gave every partition the same refusal, over one damaged batch among them."""
    rows = set(kafka.rows.values())
    return (
        any(part.flaw in POISON for part in step.parts)
        and len(rows) == 1
        and next(iter(rows)).error in (2, -1)
    )
