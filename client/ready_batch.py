"""A batch that is encoded already, all but its producer's numbers.

Producer id, epoch and base sequence stand in the header and nowhere else, so whoever has encoded records
(`column_batch.py`) hands them over once, and they are stamped when they are sent: a new header, and the
checksum, which covers the numbers too, taken again (in hardware: 64 KiB in some microseconds).
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.record_batch import BatchHeader, Buffer, seal_batch
from protocol.records import Record, read_records


@dataclass(slots=True, eq=False, kw_only=True)
class ReadyBatch:
    """Records of one partition, at least one."""

    header: BatchHeader
    """Complete but for the producer's numbers, length and checksum."""
    body: Buffer
    """The bytes after the header, compressed as it says."""
    size: int
    """The sum of `client.batch.record_size` of the records: what counts against the buffer."""

    def __len__(self) -> int:
        return self.header.record_count

    def stamped(self, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
        """The whole batch under these numbers."""
        numbered = self.header._replace(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )
        return seal_batch(numbered, self.body)

    def records(self) -> list[Record]:
        """What is in it, for the rare batch that has to be divided."""
        return read_records(seal_batch(self.header, self.body))
