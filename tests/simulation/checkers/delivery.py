"""The promises to clients: nothing acknowledged lost, nothing twice, everything in order.

One partition at a time, from the acknowledgements of producers, the reads of consumers, and the
leader's log at the end. A batch is identified by its content, which no other batch has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.simulation.checkers.logs import ReplicaLog, content_of, read_batches
from tests.simulation.observations import Append, Poll, Seek, SentBatch, Spot

ACKS_ALL = -1


class Delivery:
    """Everything seen of one partition."""

    def __init__(
        self,
        spot: Spot,
        sent: Sequence[SentBatch],
        polls: Sequence[Poll],
        log: ReplicaLog,
        *,
        seeks: Sequence[Seek] = (),
        appends: Sequence[Append] = (),
    ) -> None:
        """`appends`: what any disk took of the partition."""
        self.spot = spot
        self.log = log
        self._seeks = seeks
        self._appends = appends
        self._sent = sent
        self._polls = polls
        self._batch_of = {content_of(data): batch for batch in sent for data in batch.identities}
        self._offsets: dict[bytes, dict[int, str]] = {}
        """Content -> offsets at which it was seen, each with who saw it first."""
        self._contents: dict[int, dict[bytes, str]] = {}
        """Offset -> contents that were seen there, each with who saw it first."""
        self._collect()

    def _collect(self) -> None:
        for batch in self.log.batches:
            self._see(batch.base_offset, batch.content, f"the log of {self.log.node}")
        for poll in self._polls:
            self._see(poll.base_offset, content_of(poll.data), f"{poll.consumer} at {poll.at:.3f}")
        for sent in self._sent:
            if sent.acks == ACKS_ALL and sent.offset is not None and sent.offset >= 0:
                witness = f"an acknowledgement at {sent.acknowledged_at:.3f}"
                self._see(sent.offset, content_of(sent.data), witness)

    def _see(self, offset: int, content: bytes, witness: str) -> None:
        self._offsets.setdefault(content, {}).setdefault(offset, witness)
        self._contents.setdefault(offset, {}).setdefault(content, witness)

    def faults(self) -> Iterator[str]:
        """Every broken promise."""
        yield from self._lost()
        yield from self._made_up()
        yield from self._twice()
        yield from self._inconsistent()
        yield from self._out_of_order()
        yield from self._skipped()

    def _lost(self) -> Iterator[str]:
        """Acknowledged by all, above the log start, and not there."""
        stored = {batch.content for batch in self.log.batches}
        for sent in self._sent:
            if sent.acks != ACKS_ALL or sent.acknowledged_at is None:
                continue
            content = content_of(sent.data)
            if content in stored:
                continue
            seen = self._offsets.get(content, {})
            if not any(offset < self.log.start for offset in seen) and not self._may_be_deleted(
                content
            ):
                yield f"{self.spot}: lost {_name(sent)}, seen at {seen}; log from {self.log.start}"

    def _may_be_deleted(self, content: bytes) -> bool:
        """An acknowledgement without an offset (46) does not say where the batch is."""
        return any(
            batch.base_offset < self.log.start and batch.content == content
            for append in self._appends
            for batch in read_batches(append.data)
        )

    def _made_up(self) -> Iterator[str]:
        for content, seen in self._offsets.items():
            if content not in self._batch_of:
                yield f"{self.spot}: no client sent what is at {seen}: {content[:60]!r}"

    def _twice(self) -> Iterator[str]:
        for content, seen in self._offsets.items():
            if len(seen) > 1:
                yield f"{self.spot}: twice, {_name(self._batch_of.get(content))} at {seen}"

    def _inconsistent(self) -> Iterator[str]:
        for offset, contents in self._contents.items():
            if len(contents) > 1:
                names = {_name(self._batch_of.get(c)): who for c, who in contents.items()}
                yield f"{self.spot}: different batches at offset {offset}: {names}"

    def _out_of_order(self) -> Iterator[str]:
        """Batches of one producer out of the order in which they were sent."""
        last: dict[str, tuple[int, int]] = {}
        for sent in self._sent:
            seen = self._offsets.get(content_of(sent.data)) if sent.data else None
            if sent.acks != ACKS_ALL or not seen:
                continue
            offset = min(seen)
            number, before = last.get(sent.producer, (-1, -1))
            if offset <= before:
                yield (
                    f"{self.spot}: batch {sent.number} of {sent.producer} stands at {offset}, "
                    f"batch {number} before it at {before}"
                )
            last[sent.producer] = sent.number, offset

    def _skipped(self) -> Iterator[str]:
        """Polls continue where the poll before ended, except for deleted records."""
        next_offsets: dict[str, int] = {}
        allowed = {(seek.consumer, seek.position): seek.log_start_offset for seek in self._seeks}
        for poll in self._polls:
            (batch,) = read_batches(poll.data)
            expected = next_offsets.get(poll.consumer, 0)
            start = max(self.log.start, allowed.get((poll.consumer, expected), 0))
            if batch.base_offset > expected >= start:
                yield f"{self.spot}: {poll.consumer} skipped {expected}..{batch.base_offset - 1}"
            if batch.next_offset <= expected:
                yield f"{self.spot}: {poll.consumer} read {batch.base_offset} again"
            next_offsets[poll.consumer] = batch.next_offset


def _name(batch: SentBatch | None) -> str:
    if batch is None:
        return "a batch that no client sent"
    return f"batch {batch.number} of {batch.producer} (sequence {batch.base_sequence})"
