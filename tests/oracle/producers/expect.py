"""A model's verdict on the wire, in DescribeProducers and in the log."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from tests.oracle.game import MismatchError
from tests.oracle.producers.history import TopicKind
from tests.oracle.producers.play import Row
from tests.oracle.producers.reference import NONE, Partition, Verdict
from tests.support.raw_batches import LOG_APPEND_TIME, StoredBatch, split_log
from tests.support.raw_client import ProducerRow

_LOG_START_SINCE = 5
NO_LOG_START = -1


def refused_row(error: int, version: int, *, tells_log_start: bool) -> Row:
    """The row of an error; the log starts at 0 in all histories."""
    is_told = tells_log_start and version >= _LOG_START_SINCE
    return Row(error, -1, -1, 0 if is_told else NO_LOG_START)


def row_of(
    verdict: Verdict, partition: Partition, kind: TopicKind, version: int, answered: Row
) -> Row:
    """The row that `verdict` means. A time of append is taken from `answered` if it is one."""
    if verdict.error != NONE:
        return refused_row(verdict.error, version, tells_log_start=True)
    start = 0 if version >= _LOG_START_SINCE else NO_LOG_START
    original = verdict.original
    if original is not None:
        time = answered.log_append_time if original.timestamp is None else original.timestamp
        return Row(NONE, original.base_offset, time, start)
    is_stamped = kind is TopicKind.APPEND_TIME and answered.log_append_time > 0
    time = answered.log_append_time if is_stamped else -1
    return Row(NONE, partition.log_end_offset, time, start)


def check_row(name: str, answered: Row, wanted: Row) -> None:
    """Raises MismatchError with both."""
    if answered != wanted:
        raise MismatchError(f"{name} answered {tuple(answered)}, its model says {tuple(wanted)}")


def check_producers(name: str, partition: Partition, found: Sequence[ProducerRow]) -> None:
    """Compares DescribeProducers with the model; a timestamp that is not known is not compared."""
    wanted = sorted(
        (producer_id, entry.epoch, entry.last_sequence, entry.window[-1].timestamp)
        for producer_id, entry in partition.entries.items()
    )
    is_equal = len(found) == len(wanted) and all(
        row[:3] == want[:3] and want[3] in (row.last_timestamp, None) and row[4:] == (-1, -1)
        for row, want in zip(found, wanted, strict=True)
    )
    if not is_equal:
        raise MismatchError(f"{name} knows {[tuple(row) for row in found]}, its model {wanted}")


def as_stored(records: bytes, kind: TopicKind) -> bytes:
    """The first batch as a broker stores it, but for what `StoredBatch.masked` leaves out.

    On a topic with create time Kafka clears the bit that says otherwise.
    """
    batch = bytearray(split_log(records)[0].data)
    if kind is not TopicKind.APPEND_TIME and batch[22] & LOG_APPEND_TIME:
        batch[22] &= ~LOG_APPEND_TIME
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def check_log(
    name: str, partition: Partition, kind: TopicKind, stored: Sequence[StoredBatch]
) -> None:
    """Compares what is stored with what the model took in, byte for byte."""
    wanted = [
        split_log(base_offset.to_bytes(8, "big") + records[8:])[0]
        for base_offset, records in partition.stored
    ]
    is_stamped = kind is TopicKind.APPEND_TIME
    masked = [
        [batch.masked(log_append_time=is_stamped) for batch in log] for log in (stored, wanted)
    ]
    if masked[0] != masked[1]:
        raise MismatchError(_first_unequal(name, *masked))
    if not all(batch.crc_is_right for batch in stored):
        raise MismatchError(f"{name} stored a wrong CRC")


def _first_unequal(name: str, stored: Sequence[bytes], wanted: Sequence[bytes]) -> str:
    """Names the first batch that differs, with the bytes of both (leader epoch left out)."""
    for index in range(max(len(stored), len(wanted))):
        pair = [log[index].hex() if index < len(log) else "nothing" for log in (stored, wanted)]
        if pair[0] != pair[1]:
            return f"{name}'s log, batch {index}: {pair[0]}\n  its model: {pair[1]}"
    raise AssertionError("the logs are equal")
