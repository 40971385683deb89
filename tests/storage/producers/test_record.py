"""The packed form of one producer's entry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.storage.producers.record import (
    WINDOW_MAX,
    decode_record,
    encode_record,
    read_append_ms,
    read_batch_count,
    record_size,
    trim_record,
)
from tests.storage.producers.entries import entries

ENTRY = ProducerEntry(3, 95, 1_763_685_000_123, (BatchMetadata(99, 1004, 4, 1_763_685_000_000, 7),))
PACKED = bytes.fromhex(
    "bb63d1a39a010000 5f000000 0300 0100"
    "63000000 ec03000000000000 04000000 4063d1a39a010000 0700000000000000"
)


def test_golden_record() -> None:
    """The layout is the one that the format page shows, field by field."""
    assert encode_record(ENTRY) == PACKED
    assert decode_record(PACKED) == ENTRY


@settings(deadline=None)
@given(entries)
def test_round_trip(entry: ProducerEntry) -> None:
    """Every entry comes back from its record unchanged, whatever follows the record."""
    record = encode_record(entry)
    assert len(record) == record_size(len(entry.batches))
    assert decode_record(record) == entry
    assert decode_record(record + b"what a longer record left here") == entry
    assert read_append_ms(record) == entry.last_append_ms
    assert read_batch_count(record) == len(entry.batches)


@settings(deadline=None)
@given(entries, st.integers(1, 12))
def test_trim_keeps_the_newest_batches(entry: ProducerEntry, window: int) -> None:
    """A trimmed record is the record of the trimmed entry."""
    trimmed = trim_record(encode_record(entry) + b"left over", window)
    assert decode_record(trimmed) == replace(entry, batches=entry.batches[-window:])
    assert len(trimmed) == record_size(read_batch_count(trimmed))


def test_decoded_batches_are_batches() -> None:
    """A decoded batch is a `BatchMetadata` with its names, not a plain tuple."""
    batch = decode_record(PACKED).batches[0]
    assert isinstance(batch, BatchMetadata)
    assert (batch.base_sequence, batch.base_offset) == (95, 1000)


def test_widest_window_fits() -> None:
    """A window of `WINDOW_MAX` batches is kept, a wider one is our own mistake."""
    batches = ENTRY.batches * WINDOW_MAX
    assert decode_record(encode_record(replace(ENTRY, batches=batches))).batches == batches
    with pytest.raises(AssertionError):
        encode_record(replace(ENTRY, batches=(*batches, *ENTRY.batches)))
