"""The seeded generator of histories.

It follows what Kafka will most likely accept (`reference.Partition` under Kafka's rules), so that
"the next batch", "a repeat of age 4" and "a gap" mean what they say; if a restart or a named
difference makes that guess wrong, the history continues and is judged all the same.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.oracle.producers.differences import LEFT_OVER
from tests.oracle.producers.flaws import FLAWS, TOO_LARGE, compressed, left_over, uncompressed
from tests.oracle.producers.history import (
    SMALL_BYTES_MAX,
    UNKNOWN_PARTITION,
    UNKNOWN_TOPIC,
    Describe,
    InitProducerId,
    Part,
    Produce,
    ProducersHistory,
    Step,
    TopicKind,
)
from tests.oracle.producers.reference import KAFKA, SEQUENCES, Facts, Partition
from tests.support.raw_batches import Batch, plain_batch

_DAY_MS = 86_400_000
_STEPS = (4, 16)
"""Requests of one half, from and to."""
_EPOCH_MAX = 32_767
_ZSTD_SINCE = 7
_HEADER = struct.Struct(">qiibIhiqqqhii")


def facts_of(records: bytes | None) -> Facts | None:
    """The claims of the first batch's header; None without a whole header."""
    if records is None or len(records) < _HEADER.size:
        return None
    header = _HEADER.unpack_from(records)
    _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
    content = uncompressed(attributes, records[_HEADER.size :])
    return Facts(producer_id, epoch, sequence, delta + 1, timestamp, content)


@dataclass(slots=True)
class _Line:
    """One producer's batches on one slot."""

    producer_id: int
    epoch: int
    next_sequence: int
    timestamp: int
    """Timestamp of its records, in ms: now, or so old that Kafka forgets the producer at a restart."""
    sent: list[Batch] = field(default_factory=list)
    """The batches of this epoch that Kafka took, oldest first."""


@dataclass(slots=True)
class _Slot:
    kind: TopicKind
    kafka: Partition = field(default_factory=lambda: Partition(KAFKA))
    lines: list[_Line] = field(default_factory=list)


class Generator:
    """Makes history `number` of a seed."""

    def __init__(self, seed: int, number: int, *, now_ms: int, accepts_unknown: bool) -> None:
        self._rng = random.Random(f"{seed}/{number}")
        self._now_ms = now_ms
        self._high_start_share = 0.35 if accepts_unknown else 0.06
        kinds = [TopicKind.CREATE_TIME] * 4 + [TopicKind.APPEND_TIME, TopicKind.SMALL]
        self._slots = [_Slot(self._rng.choice(kinds)) for _ in range(self._rng.randint(1, 3))]
        self._history = ProducersHistory(
            seed=seed, number=number, slots=[slot.kind for slot in self._slots]
        )

    def generate(self) -> ProducersHistory:
        for half in self._history.halves:
            half += [self._step() for _ in range(self._rng.randint(*_STEPS))]
        return self._history

    def _step(self) -> Step:
        draw = self._rng.random()
        if draw < 0.05:
            return Describe(slot=self._rng.randrange(len(self._slots)))
        if draw < 0.08:
            return self._init_producer_id()
        return self._produce()

    def _init_producer_id(self) -> InitProducerId:
        known = self._rng.choice([(-1, -1), (-1, -1), (5, 3), (-1, 3), (5, -1), (-7, 2)])
        version = self._rng.randint(0, 5)
        producer_id, producer_epoch = known if version >= 3 else (-1, -1)
        return InitProducerId(
            version=version,
            transactional_id=self._rng.choice([None, None, None, ""]),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

    def _produce(self) -> Produce:
        rng = self._rng
        acks = rng.choices([-1, 1, 0, 2], [63, 30, 5, 2])[0]
        version = self._version = rng.randint(3, 13)
        may_be_flawed = acks in (-1, 1)
        count = rng.choices([1, 2, 3], [75, 18, 7])[0]
        chosen = rng.sample(range(len(self._slots)), min(count, len(self._slots)))
        if may_be_flawed and rng.random() < 0.02:
            chosen.append(rng.choice(chosen))
            may_be_flawed = False  # Kafka may store one copy and tell of the other
        parts: list[Part] = []
        for slot in chosen:
            parts.append(self._part(slot, flawless=not may_be_flawed, sends=acks != 2))
            may_be_flawed = may_be_flawed and not parts[-1].flaw
        if rng.random() < 0.03:
            parts.append(self._stray(parts[0].records, version))
        return Produce(version=version, acks=acks, parts=tuple(parts))

    def _stray(self, records: bytes | None, version: int) -> Part:
        """A part for a partition that does not exist.

        Version 13 has no names, so an unknown topic differs.
        """
        slot = UNKNOWN_PARTITION if version >= 13 else self._rng.choice([-1, -2])
        assert slot in (UNKNOWN_TOPIC, UNKNOWN_PARTITION)
        return Part(slot=slot, records=records, note="to nowhere")

    def _part(self, number: int, *, flawless: bool, sends: bool) -> Part:
        self._is_taken = True
        slot = self._slots[number]
        line = self._line(slot)
        draw = self._rng.random()
        if draw < 0.06:
            part = self._anonymous(number)
        elif draw < 0.17 and not flawless:
            part = self._flawed(number, line)
        else:
            part = self._numbered(number, line)
        if sends and self._is_taken:
            self._follow(slot, line, part)
        return part

    def _line(self, slot: _Slot) -> _Line:
        """A known producer most of the time, else a new one."""
        if slot.lines and self._rng.random() < 0.88:
            return self._rng.choice(slot.lines)
        rng = self._rng
        age_ms = rng.choices([0, 2 * _DAY_MS], [92, 8])[0]
        line = _Line(
            producer_id=rng.choice([rng.randrange(10), rng.randrange(2**63)]),
            epoch=rng.choices([0, rng.randrange(_EPOCH_MAX), _EPOCH_MAX, -1], [80, 10, 5, 5])[0],
            next_sequence=0,
            timestamp=rng.choices([self._now_ms - age_ms, -1], [97, 3])[0],
        )
        is_virgin = slot.kafka.log_end_offset == 0
        if rng.random() < self._high_start_share * (0.15 if is_virgin else 1):
            line.next_sequence = rng.choice([rng.randint(1, 9), SEQUENCES - rng.randint(1, 9)])
        slot.lines.append(line)
        return line

    def _anonymous(self, number: int) -> Part:
        producer_id = self._rng.choice([-1, -1, -5])
        batch = self._values_batch(Facts(producer_id, -1, -1, self._count(), self._now_ms))
        return Part(slot=number, records=batch.encode(), note=f"without an id {_numbers(batch)}")

    def _flawed(self, number: int, line: _Line) -> Part:
        batch = self._batch(line, line.next_sequence)
        rng = self._rng
        if rng.random() < 0.12:
            records = left_over(rng, batch.encode())
            note = f"bytes left over {_numbers(batch)}"
            return Part(slot=number, records=records, note=note, flaw=LEFT_OVER)
        if rng.random() < 0.25:
            codec, packed = compressed(rng, batch)
            self._is_taken = codec != "zstd" or self._version >= _ZSTD_SINCE
            return self._flaw(number, codec, batch, packed.encode())
        if self._slots[number].kind is TopicKind.SMALL and rng.random() < 0.7:
            return self._large(number, batch)
        self._is_taken = False
        name = rng.choice(list(FLAWS))
        return self._flaw(number, name, batch, FLAWS[name](rng, batch))

    def _large(self, number: int, batch: Batch) -> Part:
        """Far too large, or within a byte of the topic's limit."""
        size = self._rng.choice([None, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1])
        self._is_taken = size == SMALL_BYTES_MAX
        if size is None:
            return self._flaw(number, "far too large", batch, TOO_LARGE(self._rng, batch))
        facts = facts_of(batch.encode())
        assert facts is not None
        exact = _sized(facts, size)
        return self._flaw(number, f"{size} bytes", exact, exact.encode())

    def _flaw(self, number: int, flaw: str, batch: Batch, records: bytes) -> Part:
        return Part(slot=number, records=records, note=f"{flaw} {_numbers(batch)}", flaw=flaw)

    def _numbered(self, number: int, line: _Line) -> Part:
        name, action = self._rng.choices(_ACTIONS, _WEIGHTS)[0]
        batch = action(self, line)
        return Part(slot=number, records=batch.encode(), note=f"{name} {_numbers(batch)}")

    def _follow(self, slot: _Slot, line: _Line, part: Part) -> None:
        """Keeps the line where Kafka will be, if Kafka takes the part."""
        facts = facts_of(part.records)
        if facts is None or not slot.kafka.decide(facts).appends:
            return
        slot.kafka.append(facts, b"", facts.timestamp)
        if facts.producer_id != line.producer_id:
            return
        if facts.producer_epoch != line.epoch:
            line.epoch = facts.producer_epoch
            line.sent.clear()
        line.next_sequence = (facts.last_sequence + 1) % SEQUENCES
        line.sent.append(self._last_batch)

    # The actions: each makes the batch of one request.

    def _next(self, line: _Line) -> Batch:
        return self._batch(line, line.next_sequence)

    def _repeat(self, line: _Line, youngest: int, oldest: int) -> Batch:
        """A batch sent before; age 1 is the newest."""
        if len(line.sent) < youngest:
            return self._next(line)
        age = self._rng.randint(youngest, min(oldest, len(line.sent)))
        self._last_batch = line.sent[-age]
        return self._last_batch

    def _newest_again(self, line: _Line) -> Batch:
        return self._repeat(line, 1, 1)

    def _window_again(self, line: _Line) -> Batch:
        return self._repeat(line, 2, 5)

    def _old_again(self, line: _Line) -> Batch:
        return self._repeat(line, 6, 40)

    def _other_bytes(self, line: _Line) -> Batch:
        known = self._repeat(line, 1, 5)
        facts = facts_of(known.encode())
        assert facts is not None
        return self._values_batch(facts)

    def _overlap(self, line: _Line) -> Batch:
        """Some old sequences and perhaps some new ones, cut otherwise than before."""
        back = self._rng.randint(1, 8)
        first = max(line.next_sequence - back, 0)
        return self._batch(line, first, self._rng.randint(1, back + 2))

    def _gap(self, line: _Line) -> Batch:
        step = self._rng.choice([1, 1, 2, 100, 2**30, 2**30 + 1, 2**31 - 2])
        return self._batch(line, (line.next_sequence + step) % SEQUENCES)

    def _from_zero(self, line: _Line) -> Batch:
        return self._batch(line, 0)

    def _new_epoch(self, line: _Line) -> Batch:
        return self._batch(line, 0, epoch=min(line.epoch + self._rng.choice([1, 1, 9]), _EPOCH_MAX))

    def _new_epoch_later(self, line: _Line) -> Batch:
        first = self._rng.choice([line.next_sequence, 1, 77])
        return self._batch(line, first, epoch=min(line.epoch + 1, _EPOCH_MAX))

    def _old_epoch(self, line: _Line) -> Batch:
        first = self._rng.choice([0, line.next_sequence, max(line.next_sequence - 1, 0)])
        return self._batch(line, first, epoch=self._rng.choice([line.epoch - 1, 0, -1, -2, -32768]))

    def _batch(
        self, line: _Line, first: int, count: int | None = None, *, epoch: int | None = None
    ) -> Batch:
        return self._values_batch(
            Facts(
                line.producer_id,
                max(line.epoch if epoch is None else epoch, -32768),
                first,
                count or self._count(),
                line.timestamp,
            )
        )

    def _count(self) -> int:
        return self._rng.choices([1, 2, 3, 5], [55, 25, 15, 5])[0]

    def _values_batch(self, facts: Facts) -> Batch:
        rng = self._rng
        self._last_batch = plain_batch(
            [rng.randbytes(rng.randint(0, 24)) for _ in range(facts.record_count)],
            producer_id=facts.producer_id,
            producer_epoch=facts.producer_epoch,
            base_sequence=facts.base_sequence,
            timestamp=facts.timestamp,
        )
        return self._last_batch

    _last_batch: Batch
    """The batch made last, which `_follow` remembers if Kafka takes it."""
    _is_taken: bool
    """Whether nothing but the de-duplication decision will refuse the part made last."""
    _version: int
    """The version of the current produce request."""


def _sized(facts: Facts, size: int) -> Batch:
    """One record, padded so that the whole batch has `size` bytes."""
    value = b""
    while True:
        batch = plain_batch(
            [value],
            producer_id=facts.producer_id,
            producer_epoch=facts.producer_epoch,
            base_sequence=facts.base_sequence,
            timestamp=facts.timestamp,
        )
        if len(batch.encode()) >= size:
            return batch
        value += b"x"


def _numbers(batch: Batch) -> str:
    return (
        f"(id {batch.producer_id} epoch {batch.producer_epoch} "
        f"sequence {batch.base_sequence} +{batch.record_count})"
    )


_Action = tuple[str, Callable[[Generator, _Line], Batch]]
_WEIGHTED: tuple[tuple[int, _Action], ...] = (
    (44, ("next", Generator._next)),
    (7, ("newest again", Generator._newest_again)),
    (10, ("window again", Generator._window_again)),
    (8, ("old again", Generator._old_again)),
    (3, ("other bytes", Generator._other_bytes)),
    (7, ("overlap", Generator._overlap)),
    (5, ("gap", Generator._gap)),
    (3, ("from zero", Generator._from_zero)),
    (4, ("new epoch", Generator._new_epoch)),
    (3, ("new epoch, not from zero", Generator._new_epoch_later)),
    (4, ("old epoch", Generator._old_epoch)),
)
_WEIGHTS = [weight for weight, _ in _WEIGHTED]
_ACTIONS = [action for _, action in _WEIGHTED]
