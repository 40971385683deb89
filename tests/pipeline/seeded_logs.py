"""Sound logs of several seeded producers, and every kind of damage done to them on purpose.

Each damage affects a separate producer, so that the expected findings are known exactly.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import NamedTuple

from echoless.pipeline.audit.findings import FindingKind
from tests.pipeline.written_logs import NOW_MS, Sent


class Expected(NamedTuple):
    """The expected finding for one damage."""

    kind: FindingKind
    producer_id: int
    base_sequence: int
    records: int


def sound_log(seed: str, *, producers: int = 6, batches: int = 120) -> list[Sent]:
    """Batches as a broker stores them: several producers in turn, some with more than one epoch."""
    rng = random.Random(seed)
    state = {100 + number: (0, 0) for number in range(producers)}
    log = []
    for number in range(batches):
        timestamp, leader_epoch = NOW_MS + 50 * number, number // 50
        if rng.random() < 0.1:
            log.append(Sent(-1, -1, -1, rng.randint(1, 4), timestamp, leader_epoch))
            continue
        producer_id = rng.choice(list(state))
        epoch, sequence = state[producer_id]
        if rng.random() < 0.03:
            epoch, sequence = epoch + 1, 0
        sent = Sent(producer_id, epoch, sequence, rng.randint(1, 5), timestamp, leader_epoch)
        state[producer_id] = epoch, sent.next_sequence
        log.append(sent)
    return log


class Damage:
    """Damages a log, one producer after another, and keeps what must be found."""

    def __init__(self, log: list[Sent], seed: str) -> None:
        self.log = list(log)
        self.expected: list[Expected] = []
        self._rng = random.Random(seed)
        self._untouched = sorted({sent.producer_id for sent in log if sent.producer_id >= 0})
        self._rng.shuffle(self._untouched)

    def do(self, damage: Callable[[Damage, list[int]], Expected]) -> None:
        """Damages the next producer; `damage` gets the places of its batches in the log."""
        producer_id = self._untouched.pop()
        places = [i for i, sent in enumerate(self.log) if sent.producer_id == producer_id]
        self.expected.append(damage(self, places))

    def repeat_batch(self, places: list[int]) -> Expected:
        """One batch is stored a second time, some batches later, in the same epoch."""
        at = self._rng.choice(places)
        sent = self.log[at]
        last = max(i for i in places if self.log[i].epoch == sent.epoch)
        again = self._rng.randint(at + 1, last + 1)
        self._insert(again, sent)
        return Expected(FindingKind.REPEAT, sent.producer_id, sent.sequence, sent.count)

    def lose_batch(self, places: list[int]) -> Expected:
        """One batch is missing that others of its epoch follow."""
        followed = [a for a, b in itertools.pairwise(places) if self._same_epoch(a, b)]
        lost = self.log.pop(self._rng.choice(followed))
        return Expected(FindingKind.GAP, lost.producer_id, lost.sequence, lost.count)

    def swap_batches(self, places: list[int]) -> Expected:
        """Exchanges two consecutive batches."""
        pairs = [(a, b) for a, b in itertools.pairwise(places) if self._same_epoch(a, b)]
        a, b = self._rng.choice(pairs)
        early, late = self.log[a], self.log[b]
        self.log[a] = late._replace(leader_epoch=early.leader_epoch)
        self.log[b] = early._replace(leader_epoch=late.leader_epoch)
        return Expected(FindingKind.REORDERING, early.producer_id, early.sequence, early.count)

    def revive_epoch(self, places: list[int]) -> Expected:
        """A producer of a newer epoch is followed by one more batch of its older epoch."""
        last = self.log[places[-1]]
        newer = Sent(last.producer_id, last.epoch + 1, 0, 2, last.timestamp)
        older = last._replace(sequence=last.next_sequence, count=3)
        self._insert(places[-1] + 1, newer)
        self._insert(places[-1] + 2, older)
        return Expected(FindingKind.EPOCH_REGRESSION, last.producer_id, older.sequence, 3)

    def _same_epoch(self, a: int, b: int) -> bool:
        return self.log[a].epoch == self.log[b].epoch

    def _insert(self, at: int, sent: Sent) -> None:
        leader_epoch = self.log[min(at, len(self.log)) - 1].leader_epoch
        self.log.insert(at, sent._replace(leader_epoch=leader_epoch))


ALL_DAMAGES = (
    Damage.repeat_batch,
    Damage.lose_batch,
    Damage.swap_batches,
    Damage.revive_epoch,
)


def damaged_log(seed: str) -> Damage:
    """A sound log with each damage done to one of its producers."""
    damage = Damage(sound_log(seed), seed)
    for one in ALL_DAMAGES:
        damage.do(one)
    return damage
