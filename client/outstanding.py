"""The batches of a partition that have no outcome yet, oldest first. No I/O.

Invariant: the sequences in `sent` and then `waiting` follow each other without a gap.
"""

from __future__ import annotations

from collections import deque

from client.sequenced_batch import Acknowledged, SequencedBatch, distance


class Outstanding:
    """Two queues: what was sent, and what never was."""

    def __init__(self) -> None:
        self.sent: deque[SequencedBatch] = deque()
        """Sent or skipped, without an outcome that could be told."""
        self.waiting: deque[SequencedBatch] = deque()
        """Never sent."""
        self.stored_through: int | None = None
        """The leader's last sequence, when it was last asked."""

    @property
    def oldest(self) -> SequencedBatch | None:
        return next((queue[0] for queue in (self.sent, self.waiting) if queue), None)

    @property
    def record_count(self) -> int:
        return sum(batch.record_count for queue in (self.sent, self.waiting) for batch in queue)

    def is_known_stored(self, batch: SequencedBatch) -> bool:
        """Whether the leader said that it has all of the batch."""
        through = self.stored_through
        return through is not None and distance(through, batch.last_sequence) >= 0

    def oldest_open(self) -> SequencedBatch | None:
        """The oldest batch sent whose own outcome is still to come."""
        return next((b for b in self.sent if b.stored is None and not b.is_skipped), None)

    def to_retry(self) -> SequencedBatch | None:
        """The oldest batch that has to go again; marks those that can be skipped.

        A batch is skipped only before one whose acknowledgement is still to come, and confirms it.
        """
        still_open = [b for b in self.sent if b.stored is None and not b.is_skipped]
        for batch in still_open:
            if self.is_known_stored(batch) and (self.waiting or batch is not still_open[-1]):
                batch.is_skipped = True
            else:
                return batch
        return None

    def take_waiting(self) -> SequencedBatch | None:
        """The next new batch; it is in `sent` from here on."""
        while self.waiting:
            batch = self.waiting.popleft()
            self.sent.append(batch)
            if self.waiting and self.is_known_stored(batch):
                batch.is_skipped = True
                continue
            return batch
        return None

    def settle(self) -> list[Acknowledged]:
        """Acknowledges from the oldest on, as far as outcomes are known without a gap."""
        confirmed = max(
            (index for index, batch in enumerate(self.sent) if batch.stored), default=-1
        )
        actions: list[Acknowledged] = []
        for _ in range(confirmed + 1):
            batch = self.sent[0]
            outcome = batch.stored
            if outcome is None and batch.is_skipped:
                outcome = Acknowledged(batch, None, True)
            if outcome is None:
                break
            self.sent.popleft()
            actions.append(outcome)
        return actions

    def replace(self, batch: SequencedBatch, parts: tuple[SequencedBatch, SequencedBatch]) -> None:
        """Replaces the batch by its parts among those sent."""
        index = self.sent.index(batch)
        self.sent[index] = parts[0]
        self.sent.insert(index + 1, parts[1])

    def clear(self) -> None:
        self.sent.clear()
        self.waiting.clear()
