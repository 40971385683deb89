"""A batch that is already encoded, except for its producer's numbers.

Producer id, epoch and base sequence appear in the header and nowhere else, so an encoder
(`column_batch.py`) hands over its batches once, and they are stamped when they are sent: a new
header, and a new checksum, which covers the numbers too (in hardware: 64 KiB in a few
microseconds).
"""

from __future__ import annotations

from dataclasses import dataclass

from echoless.protocol.record_batch import (
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
    seal_batch,
)
from echoless.protocol.records import Record, read_records


@dataclass(slots=True, eq=False, kw_only=True)
class ReadyBatch:
    """A batch of one partition that is already encoded, except for the numbers of its producer.

    `len` is the number of its records, at least 1.
    """

    header: BatchHeader
    """Complete except for the producer's numbers, length and checksum."""
    body: Buffer
    """The bytes after the header, compressed with the header's codec."""
    size: int
    """The upper bound, in bytes, of what its records take before compression; counts against the buffer."""

    def __len__(self) -> int:
        return self.header.record_count

    def stamped(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        is_transactional: bool = False,
    ) -> bytes:
        """The whole batch under these numbers."""
        attributes = self.header.attributes
        numbered = self.header._replace(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            attributes=attributes | TRANSACTIONAL_BIT if is_transactional else attributes,
        )
        return seal_batch(numbered, self.body)

    def records(self) -> list[Record]:
        """The decoded records, for the rare batch that has to be divided."""
        return read_records(seal_batch(self.header, self.body))


def renumbered(batch: bytes, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """The same batch under other numbers."""
    header = read_header(batch)._replace(
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
    )
    return seal_batch(header, memoryview(batch)[HEADER_SIZE:])
