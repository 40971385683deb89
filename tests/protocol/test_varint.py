"""Zigzag varints: values, widths, ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.varint import VARINT_BITS, VARLONG_BITS, read_varint, write_varint
from tests.support.raw_batches import varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_encodings(value, encoded):
    """Kafka's `ByteUtils` writes these bytes for these numbers."""
    data = bytearray()
    write_varint(data, value)
    assert data.hex() == encoded
    assert read_varint(bytes(data), 0) == (value, len(data))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_in_the_middle_of_data(value, before, behind):
    """A number reads back in place, and so does the position after it."""
    data = bytearray()
    write_varint(data, value)
    assert bytes(data) == varint(value), "the independent writer disagrees"
    found = read_varint(before + bytes(data) + behind, len(before), VARLONG_BITS)
    assert found == (value, len(before) + len(data))


@pytest.mark.parametrize(("bits", "size"), [(VARINT_BITS, 5), (VARLONG_BITS, 10)])
def test_numbers_end_within_their_width(bits, size):
    """A number without an end, one byte too long or one bit too wide, is refused."""
    for data in (b"\x80" * size, b"\x80" * size + b"\x00", b"\xff" * (size - 1) + b"\x7f"):
        with pytest.raises(DecodeError):
            read_varint(data, 0, bits)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x80", b"\xff\xff\xff\xff"])
def test_data_that_ends_inside_a_number_is_refused(data):
    """Running out of bytes raises, naming the position."""
    with pytest.raises(DecodeError, match=str(len(data))):
        read_varint(data, 0)
