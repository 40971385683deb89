"""Acknowledgements: where records are stored, and under which numbers.

A batch is acknowledged as a whole; the acknowledgement of each record is computed on access.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from echoless.protocol.sequence import increment


class Acknowledgement(NamedTuple):
    """The acknowledgement of one record: where it is stored, and under which numbers."""

    topic: str
    partition: int
    offset: int | None
    """None for a repeat so old that the broker no longer knows its offset."""
    producer_id: int
    producer_epoch: int
    sequence: int
    is_duplicate: bool | None
    """Whether an earlier attempt or run had stored it; None if that is unknown."""


class AcknowledgedBatch(NamedTuple):
    """The acknowledgement of `record_count` consecutive records; fields as in `Acknowledgement`.

    Offset and sequence are those of the first record.
    """

    topic: str
    partition: int
    base_offset: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_duplicate: bool | None
    record_count: int

    def of_record(self, index: int) -> Acknowledgement:
        """The acknowledgement of the record at `index`, from 0 on."""
        return Acknowledgement(
            self.topic,
            self.partition,
            None if self.base_offset is None else self.base_offset + index,
            self.producer_id,
            self.producer_epoch,
            increment(self.base_sequence, index),
            self.is_duplicate,
        )


class Acknowledgements(Sequence[Acknowledgement]):
    """A sequence with the acknowledgement of each record of a batch, in their order.

    They are computed on access.
    """

    __slots__ = ("batches",)

    def __init__(self, batches: Sequence[AcknowledgedBatch]) -> None:
        self.batches = batches
        """The same in compact form: one, or several if the batch was divided."""

    def __len__(self) -> int:
        return sum(batch.record_count for batch in self.batches)

    def __iter__(self) -> Iterator[Acknowledgement]:
        for batch in self.batches:
            yield from map(batch.of_record, range(batch.record_count))

    @overload
    def __getitem__(self, index: int) -> Acknowledgement: ...
    @overload
    def __getitem__(self, index: slice) -> list[Acknowledgement]: ...
    def __getitem__(self, index: int | slice) -> Acknowledgement | list[Acknowledgement]:
        indices = range(len(self))[index]
        if isinstance(indices, range):
            return [self._at(one) for one in indices]
        return self._at(indices)

    def _at(self, index: int) -> Acknowledgement:
        for batch in self.batches:
            if index < batch.record_count:
                return batch.of_record(index)
            index -= batch.record_count
        raise IndexError(index)
