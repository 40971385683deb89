"""Batches as the client builds and cuts them."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.acknowledgements import AcknowledgedBatch, Acknowledgements
from echoless.client.batch import Delivery, Piece, encode_batch, record_size
from echoless.client.open_batches import OpenBatches
from echoless.client.settings import Settings
from echoless.protocol.record_batch import HEADER_SIZE, Codec
from echoless.protocol.records import Record, build_batch, read_records

TIMES = st.integers(-1, 2**62)
BYTES = st.one_of(st.none(), st.binary(max_size=200))
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)
RECORDS = st.lists(st.builds(Record, st.just(-1), TIMES, BYTES, BYTES, HEADERS), min_size=1)


@given(RECORDS, st.sampled_from(Codec), st.integers(0, 2**31 - 1))
def test_fast_builder_makes_the_bytes_of_ours(records, codec, base_sequence):
    """aiokafka's builder is faster, and the bytes do not show it."""
    numbers = {"producer_id": 7, "producer_epoch": 3, "base_sequence": base_sequence}
    built = encode_batch(records, codec, **numbers)
    assert built == build_batch(records, codec=codec, **numbers)
    assert [one[1:4] for one in read_records(built)] == [one[1:4] for one in records]


@given(RECORDS, st.sampled_from(Codec))
def test_encoded_piece_is_numbered_anew_from_its_bytes(records, codec):
    """Its records are gone by then; other numbers, and what it is divided into, are as if they were not."""
    first = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 5}
    second = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 0}
    piece = Piece(Delivery(Future(), len(records), 100), records, 0.0)
    halves = [one.records for one in piece.divide(len(records) // 2)]
    latest = piece.max_timestamp
    piece.encode(codec, **first)
    assert piece.records is None
    assert piece.data == encode_batch(records, codec, **first)
    piece.encode(codec, **second)
    assert piece.data == encode_batch(records, codec, **second)
    assert piece.max_timestamp == latest
    for half, one in zip(halves, piece.divide(len(records) // 2), strict=True):
        assert [plain(record) for record in one.records] == [plain(record) for record in half]


def plain(record):
    """A record without its offset."""
    return (*record[1:4], tuple(record[4]))


@given(RECORDS)
def test_size_is_an_upper_bound(records):
    """The size counted by `batch_bytes_max` is never less than the size sent."""
    batch = build_batch(records)
    assert len(batch) - HEADER_SIZE <= sum(map(record_size, records))


def cut(records, settings):
    """The batches that the records make, as lists of values."""
    batches = []
    collected = OpenBatches(settings, Future, lambda batch: batches.append(batch.records))
    for record in records:
        collected.add("t", 0, record)
    collected.cut_all()
    return batches


@given(RECORDS, st.integers(1, 5), st.integers(1, 400))
def test_cuts_depend_on_records_and_settings_alone(records, records_max, bytes_max):
    """No record is left out, no batch is above its limits, and a second run cuts the same."""
    settings = Settings(batch_records_max=records_max, batch_bytes_max=bytes_max)
    batches = cut(records, settings)
    assert [record for batch in batches for record in batch] == records
    assert all(len(batch) <= records_max for batch in batches)
    assert all(sum(map(record_size, batch)) <= bytes_max or len(batch) == 1 for batch in batches)
    assert cut(records, settings) == batches


def test_partitions_are_collected_apart():
    """A batch holds records of one partition; `cut_partition` ends one of them."""
    batches = []
    collected = OpenBatches(Settings(), Future, batches.append)
    for partition in (0, 1, 0):
        collected.add("t", partition, Record(-1, 0, None, b"v"))
    collected.cut_partition("t", 0)
    collected.cut_partition("t", 7)
    assert [(batch.partition, len(batch.records)) for batch in batches] == [(0, 2)]
    collected.cut_all()
    assert [batch.partition for batch in batches] == [0, 1]


def test_delivery_of_pieces_is_one_outcome():
    """A batch that had to be divided is done with its last piece."""
    outcome: Future[Acknowledgements] = Future()
    delivery = Delivery(outcome, 3, 100)
    records = [Record(-1, time, None, b"v") for time in (5, 9, 2)]
    first, second = Piece(delivery, records, 0.0).divide(2)
    assert (first.max_timestamp, second.max_timestamp) == (9, 2)
    assert not delivery.acknowledge(AcknowledgedBatch("t", 0, 70, 7, 0, 5, False, 2))
    assert not outcome.done()
    assert delivery.acknowledge(AcknowledgedBatch("t", 0, 90, 7, 0, 7, True, 1))
    assert [(one.offset, one.sequence) for one in outcome.result(0)] == [(70, 5), (71, 6), (90, 7)]


def test_first_failure_of_a_delivery_counts():
    """The pieces after a failed one fail too, and add nothing new."""
    delivery = Delivery(Future(), 2, 100)
    assert delivery.fail(ValueError("first"))
    assert not delivery.fail(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        delivery.outcome.result(0)


@pytest.mark.parametrize("name", ["batch_records_max", "in_flight_max", "delivery_timeout_s"])
def test_settings_are_positive(name):
    """The error has the name of the wrong one."""
    with pytest.raises(ValueError, match=name):
        Settings(**{name: 0})
