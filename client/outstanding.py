"""The batches of a partition that have no outcome yet, oldest first. No I/O.

Invariant: the sequences in `sent` and then `waiting` follow each other without a gap.
"""

from __future__ import annotations

from collections import deque

from echoless.client.sequenced_batch import BatchAcknowledged, Identity, SequencedBatch, distance
from echoless.client.sequencer_actions import Failed, Failure
from echoless.protocol.sequence import increment


class Outstanding:
    """Two queues: batches that were sent, and batches that never were."""

    def __init__(self) -> None:
        self.sent: deque[SequencedBatch] = deque()
        """Batches sent or skipped whose outcome has not been reported."""
        self.waiting: deque[SequencedBatch] = deque()
        """Batches never sent."""
        self.stored_through: int | None = None
        """The leader's last sequence, when it was last asked."""

    @property
    def oldest(self) -> SequencedBatch | None:
        if self.sent:
            return self.sent[0]
        return self.waiting[0] if self.waiting else None

    @property
    def record_count(self) -> int:
        return sum(batch.record_count for queue in (self.sent, self.waiting) for batch in queue)

    def is_known_stored(self, batch: SequencedBatch) -> bool:
        """Whether the leader reported that it has the whole batch."""
        through = self.stored_through
        return through is not None and distance(through, batch.last_sequence) >= 0

    def oldest_open(self) -> SequencedBatch | None:
        """The oldest sent batch whose own outcome is still open."""
        return next((b for b in self.sent if b.stored is None and not b.is_skipped), None)

    def to_retry(self) -> SequencedBatch | None:
        """The oldest batch that has to be resent; marks those that can be skipped.

        A batch is skipped only before one whose acknowledgement is still to come, which will
        confirm it.
        """
        still_open = [b for b in self.sent if b.stored is None and not b.is_skipped]
        for batch in still_open:
            if self.is_known_stored(batch) and (self.waiting or batch is not still_open[-1]):
                batch.is_skipped = True
            else:
                return batch
        return None

    def take_waiting(self) -> SequencedBatch | None:
        """Moves the next new batch to `sent` and returns it."""
        while self.waiting:
            batch = self.waiting.popleft()
            self.sent.append(batch)
            if self.waiting and self.is_known_stored(batch):
                batch.is_skipped = True
                continue
            return batch
        return None

    def settle(self) -> list[BatchAcknowledged]:
        """Acknowledges from the oldest on, as long as outcomes are known without a gap."""
        actions: list[BatchAcknowledged] = []
        sent = self.sent
        while sent and (outcome := sent[0].stored) is not None:
            # Each names the other, and what names itself is left to the garbage collector.
            sent.popleft().stored = None
            actions.append(outcome)
        confirmed = -1
        for index, batch in enumerate(self.sent):
            if batch.stored is not None:
                confirmed = index
        for _ in range(confirmed + 1):
            batch = self.sent[0]
            outcome = batch.stored
            if outcome is None and batch.is_skipped:
                outcome = BatchAcknowledged(batch, None, True)
            if outcome is None:
                break
            self.sent.popleft().stored = None
            actions.append(outcome)
        return actions

    def replace(self, batch: SequencedBatch, parts: tuple[SequencedBatch, SequencedBatch]) -> None:
        """Replaces the batch by its parts in `sent`."""
        index = self.sent.index(batch)
        self.sent[index] = parts[0]
        self.sent.insert(index + 1, parts[1])

    def fail_all(self, failed: Failed) -> list[Failed]:
        """Removes everything after `failed` was given up; returns the failures, `failed` first."""
        others = [
            Failed(batch, Failure.STOPPED, failed.answer, _outlives(batch, failed))
            for batch in (*self.sent, *self.waiting)
            if batch is not failed.batch
        ]
        self.sent.clear()
        self.waiting.clear()
        return [failed, *others]

    def fail_stored(self, failed: Failed) -> list[Failed]:
        """Removes `failed` and batches that may be stored nevertheless; the others wait again."""
        failures, kept = [failed], deque[SequencedBatch]()
        for batch in (*self.sent, *self.waiting):
            if batch is failed.batch:
                continue
            if _outlives(batch, failed):
                failures.append(Failed(batch, Failure.STOPPED, failed.answer, may_be_stored=True))
            else:
                kept.append(batch)
        self.sent.clear()
        self.waiting = kept
        return failures

    def renumber(self, identity: Identity) -> int:
        """Numbers the waiting batches from 0 under `identity`; returns the next sequence."""
        assert not self.sent
        self.stored_through = None
        next_sequence = 0
        for batch in self.waiting:
            batch.identity = identity
            batch.base_sequence = next_sequence
            batch.attempts = 0
            batch.is_in_doubt = False
            next_sequence = increment(next_sequence, batch.record_count)
        return next_sequence


def _outlives(batch: SequencedBatch, failed: Failed) -> bool:
    """Whether a batch may be stored although the older `failed` one was given up."""
    is_known = batch.stored is not None or batch.is_skipped
    return is_known or (batch.is_in_doubt and failed.may_be_stored)
