"""Records of `__transaction_state`: both versions are read, and no bytes end a reader but with `DecodeError`."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.state_records.transaction_records import (
    EndedTransaction,
    TransactionEnd,
    TransactionPartition,
    TransactionStatus,
    TransactionValue,
    read_transaction_key,
    read_transaction_value,
    write_transaction_key,
    write_transaction_value,
)

PAGE = Path(__file__).parents[3] / "docs/formats/transaction-state.md"
START_MS = 1_700_000_000_000
EMPTY = TransactionValue(7, 6, 60_000, TransactionStatus.EMPTY, update_ms=START_MS, last_epoch=5)
PREPARED = TransactionValue(
    *(7, 32_767, 60_000, TransactionStatus.PREPARE_COMMIT),
    frozenset({TransactionPartition("t", index, bytes(range(16))) for index in (0, 1)}),
    *(START_MS + 1, START_MS, 7, 8, 2, 3, 32_766),
    EndedTransaction(7, 32_766, TransactionEnd.COMMITTED),
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
PARTITIONS = st.builds(
    TransactionPartition,
    st.text(max_size=5),
    INT32,
    st.sampled_from([bytes(16), bytes(range(16)), b"\xff" * 16]),
)
VALUES = st.builds(
    TransactionValue,
    *(INT64, INT16, INT32, st.sampled_from(TransactionStatus)),
    st.frozensets(PARTITIONS, max_size=6),
    *(INT64, INT64, INT64, INT64, INT16, INT64, INT16),
    st.none() | st.builds(EndedTransaction, INT64, INT16, st.sampled_from(TransactionEnd)),
    *(st.booleans(), INT16),
)


@given(VALUES)
def test_values_come_back(value: TransactionValue):
    """Any value is read as it was written; partitions of an Empty one are not stored."""
    read = read_transaction_value(write_transaction_value(value))
    if value.status is TransactionStatus.EMPTY:
        value = value._replace(partitions=frozenset())
    assert read == value


@given(st.text(max_size=12))
def test_keys_come_back(transactional_id: str):
    """Any id is read as it was written."""
    assert read_transaction_key(write_transaction_key(transactional_id)) == transactional_id


def test_another_type_of_record_is_named():
    """A key of a version that is not known gives its number, whatever follows."""
    assert read_transaction_key(b"\x00\x01rest") == 1


def test_what_kafka_writes_without_the_feature_is_read():
    """Version 0 has fixed lengths and no tagged fields; nothing is known then but what it says."""
    packed = struct.pack(">hqhib", 0, 7, 5, 60_000, 1)
    packed += struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 1) + struct.pack(">qq", 9, 8)
    assert read_transaction_value(packed) == TransactionValue(
        *(7, 5, 60_000, TransactionStatus.ONGOING),
        frozenset({TransactionPartition("t", 0), TransactionPartition("t", 1)}),
        *(9, 8),
    )
    empty = struct.pack(">hqhibiqq", 0, 7, 5, 60_000, 0, -1, 9, -1)
    assert read_transaction_value(empty) == TransactionValue(
        *(7, 5, 60_000, TransactionStatus.EMPTY, frozenset(), 9)
    )


def test_tags_that_are_not_known_are_skipped():
    """Tag 3, the next producer's epoch, was declared by Kafka 4.1 and is never written."""
    packed = write_transaction_value(EMPTY._replace(last_epoch=-1))
    assert packed[-1:] == b"\x00"
    tagged = packed[:-1] + b"\x01\x03\x02\x00\x07"
    assert read_transaction_value(tagged) == EMPTY._replace(last_epoch=-1)


@pytest.mark.parametrize(
    ("place", "byte", "message"), [(1, 2, "version 2"), (16, 6, "state 6"), (16, 9, "state 9")]
)
def test_what_is_not_known_is_refused(place: int, byte: int, message: str):
    """A newer version or state is not guessed at: what the record replaces is out of date."""
    packed = bytearray(write_transaction_value(EMPTY))
    packed[place] = byte
    with pytest.raises(DecodeError, match=message):
        read_transaction_value(bytes(packed))


def test_an_unknown_result_is_refused():
    """The result stands in the last byte."""
    packed = write_transaction_value(PREPARED)
    with pytest.raises(DecodeError, match="result 7"):
        read_transaction_value(packed[:-1] + b"\x07")


@pytest.mark.parametrize("reader", [read_transaction_key, read_transaction_value])
@given(data=st.binary(max_size=60), version=st.integers(0, 2))
def test_any_bytes_are_read_or_refused(
    reader: Callable[[bytes], object], data: bytes, version: int
):
    """Hostile lengths, cut fields and text that is not UTF-8 are a `DecodeError`."""
    with contextlib.suppress(DecodeError):
        reader(version.to_bytes(2) + data)


@pytest.mark.parametrize("value", [EMPTY, PREPARED])
def test_a_value_that_is_cut_off_anywhere_is_refused(value: TransactionValue):
    """No prefix of a value is a value."""
    packed = write_transaction_value(value)
    for size in range(len(packed)):
        with pytest.raises(DecodeError):
            read_transaction_value(packed[:size])


def test_the_page_shows_what_is_written():
    """The documented records give the documented bytes, in their order."""
    listing = PAGE.read_text(encoding="utf-8").split("```")[1]
    example = bytes.fromhex("".join(line.partition("  ")[0] for line in listing.splitlines()))
    written = (
        *(write_transaction_key("orders"), write_transaction_value(EMPTY)),
        write_transaction_value(PREPARED),
    )
    assert b"".join(written) == example
