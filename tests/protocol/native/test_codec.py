"""Native messages as bytes: what is read, what is refused, and what hostile bytes may cost."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.native import codec
from echoless.protocol.native.codec import (
    ENTRIES_MAX,
    FIELDS_MAX,
    NAME_BYTES_MAX,
    PACKED_BYTES_MAX,
    decode_binary,
    decode_value,
    encode_message,
    encode_message_in_buffers,
    locate_fields,
)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.text(max_size=40),
    st.binary(max_size=40),
    st.floats(allow_nan=False),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)
MESSAGES = st.dictionaries(st.text(max_size=16), VALUES, max_size=4)


@pytest.mark.parametrize("size", [0, 5, PACKED_BYTES_MAX, PACKED_BYTES_MAX + 1, 70_000])
@given(fields=MESSAGES)
@settings(max_examples=10)
def test_large_batches_are_buffers_of_their_own(size, fields):
    """The message is the same; what is large is not copied."""
    batches = bytes(size)
    rows = [{**fields, "batches": batches}, {**fields, "batches": b"few"}]
    for whole in ({**fields, "batches": batches}, {"partitions": rows, **fields}):
        buffers = encode_message_in_buffers(whole)
        assert msgpack.unpackb(b"".join(buffers)) == whole
        assert any(one is batches for one in buffers) == (size > PACKED_BYTES_MAX)
        if size <= PACKED_BYTES_MAX:
            assert buffers == [encode_message(whole)]


@settings(max_examples=50)
@given(MESSAGES)
def test_a_message_survives_the_way(fields):
    """An encoded message is located and decoded unchanged, field by field."""
    located = locate_fields(encode_message(fields))
    assert {name: decode_value(value) for name, value in located.items()} == fields


@settings(max_examples=50)
@given(MESSAGES)
def test_every_cut_is_noticed(fields):
    """A message that lacks its end is refused, wherever it was cut; so is one with a byte more."""
    message = encode_message(fields)
    for size in range(len(message)):
        with pytest.raises(DecodeError):
            locate_fields(message[:size])
    with pytest.raises(DecodeError, match="follow the message"):
        locate_fields(message + b"\xc0")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    """No bytes make anything but fields or a `DecodeError`."""
    try:
        located = locate_fields(data)
    except DecodeError:
        return
    for value in located.values():
        try:
            decode_value(value)
        except DecodeError:
            continue


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc0",
        b"\x01",
        b"\x90",
        b"\xa4text",
        b"\xc1",
        b"\x81\x01\x02",
        b"\x81\xc4\x01a\x02",
        b"\x81\x90\x02",
        b"\x82\xa1a\x01\xa1a\x02",
        b"\x81\xa1\xff\x01",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
    ],
)
def test_what_is_no_map_of_named_fields_is_refused(frame):
    """Other types, names that are no text, a name twice, lengths that lie."""
    with pytest.raises(DecodeError):
        locate_fields(frame)


@given(names=st.lists(st.text(max_size=40), min_size=1, max_size=4, unique=True), data=st.data())
def test_names_are_read_alike_each_time(names, data):
    """Whether or not a name was read before, and however it is encoded; so are those that are refused."""
    frame, sizes = bytes((0x80 | len(names),)), []
    for name in names:
        text = name.encode()
        long = b"\xd9" + bytes((len(text),)) + text
        encoded = data.draw(st.sampled_from([msgpack.packb(name), long]))
        sizes.append(len(encoded))
        frame += encoded + b"\xc0"
    is_read = all(size <= NAME_BYTES_MAX for size in sizes)
    for _ in range(2):
        if is_read:
            assert list(locate_fields(frame)) == names
        else:
            with pytest.raises(DecodeError, match="field name"):
                locate_fields(frame)


def test_names_that_are_kept_are_bounded(monkeypatch):
    """A client that makes up names takes no memory."""
    monkeypatch.setattr(codec, "_NAMES", {})
    for number in range(codec._NAMES_MAX + 5):
        assert list(locate_fields(msgpack.packb({str(number): 0}))) == [str(number)]
    assert len(codec._NAMES) == 5
    for frame in (b"\x81\x01\x02", b"\x81\xa1\xff\x01"):
        for _ in range(2):
            with pytest.raises(DecodeError):
                locate_fields(frame)


def test_deep_nesting_is_refused():
    """A few kilobytes cannot nest deeper than msgpack's own stack."""
    with pytest.raises(DecodeError):
        locate_fields(b"\x81\xa1a" + b"\x91" * 5000 + b"\xc0")


def test_too_many_fields_and_long_names_are_refused():
    """A message is a handful of named fields."""
    with pytest.raises(DecodeError, match="at most"):
        locate_fields(msgpack.packb({str(number): 0 for number in range(FIELDS_MAX + 1)}))
    with pytest.raises(DecodeError, match="field name"):
        locate_fields(msgpack.packb({"n" * 100: 0}))


@pytest.mark.parametrize(
    "value",
    [
        msgpack.packb([0] * (ENTRIES_MAX + 1)),
        msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb(msgpack.Timestamp(1)),
        msgpack.packb({1: 2}),
        b"\xa1\xff",
    ],
)
def test_values_out_of_bounds_are_refused(value):
    """Long arrays, extension types, maps by numbers, and text that is not UTF-8."""
    with pytest.raises(DecodeError):
        decode_value(memoryview(value))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536])
def test_bytes_are_found_in_place(size):
    """A binary value of any size is a view of the frame: nothing is copied."""
    frame = msgpack.packb({"batch": b"b" * size})
    found = decode_binary(locate_fields(frame)["batch"])
    assert found == b"b" * size
    assert found.obj is frame


@pytest.mark.parametrize("value", [None, 1, "text", [b"x"]])
def test_other_types_are_no_bytes(value):
    """Only msgpack's binary family counts as bytes."""
    assert decode_binary(memoryview(msgpack.packb(value))) is None
