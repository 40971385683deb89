"""Request headers, read by hand, against kio and against damage."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.headers import (
    read_request_header,
    read_unsigned_varint,
    skip_tagged_fields,
    write_unsigned_varint,
)


@given(
    key=st.integers(-(2**15), 2**15 - 1),
    version=st.integers(-(2**15), 2**15 - 1),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=50),
)
def test_a_header_written_by_kio_is_read_back(key, version, correlation_id, client_id):
    """Header v1 and v2 agree up to the tagged fields."""
    from kio.schema.request_header.v2.header import RequestHeader
    from kio.serial import entity_writer

    out = io.BytesIO()
    entity = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    entity_writer(RequestHeader)(out, entity)
    frame = out.getvalue()
    header = read_request_header(frame)
    assert header[:4] == (key, version, correlation_id, client_id)
    assert skip_tagged_fields(frame, header.body_position) == len(frame)


@given(st.binary(max_size=40))
def test_any_bytes_give_a_header_or_a_decode_error(data):
    """Garbage never raises anything but DecodeError."""
    try:
        header = read_request_header(data)
        position = skip_tagged_fields(data, header.body_position)
    except DecodeError:
        return
    assert 10 <= position <= len(data)


def test_a_header_cut_anywhere_is_refused():
    """Every proper prefix of a header is a DecodeError."""
    whole = b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x03abc\x00"
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            skip_tagged_fields(whole[:size], read_request_header(whole[:size]).body_position)


def test_tagged_fields_are_skipped():
    """Unknown tagged fields have a size and are passed over."""
    assert skip_tagged_fields(b"\x02\x00\x01a\x05\x02bc!", 0) == 8


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_round_trip(value):
    """Written numbers are read back, with nothing left over."""
    data = write_unsigned_varint(value)
    assert read_unsigned_varint(data, 0) == (value, len(data))


def test_a_varint_without_end_is_refused():
    """Five bytes are the most that a 32-bit varint takes."""
    with pytest.raises(DecodeError):
        read_unsigned_varint(b"\xff" * 10, 0)
