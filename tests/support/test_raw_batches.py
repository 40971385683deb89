"""The oracle's own batches, compared with those of a client library."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.raw_batches import plain_batch, split_log


def test_a_plain_batch_is_what_a_client_builds() -> None:
    """Field by field and byte by byte the batch of aiokafka's builder, long records included."""
    values = [b"", b"one", b"x" * 200]
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=5,
        producer_epoch=3,
        base_sequence=2**31 - 1,
        batch_size=4096,
    )
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=1000, key=None, value=value, headers=[])
    batch = plain_batch(
        values, producer_id=5, producer_epoch=3, base_sequence=2**31 - 1, timestamp=1000
    )
    (ours,) = split_log(batch.encode())
    (theirs,) = split_log(bytes(builder.build()))
    assert ours.crc_is_right
    assert ours.masked(log_append_time=False) == theirs.masked(log_append_time=False)


def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    """A fetch may end in the middle of a batch."""
    batch = plain_batch([b"one"]).encode()
    assert len(split_log(batch + batch[:-1])) == 1
