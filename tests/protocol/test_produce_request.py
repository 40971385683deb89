"""The hand-read Produce request against kio: the same values, the same refusals."""

from __future__ import annotations

import datetime
import importlib
import io
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.produce_request import (
    _KNOWN_HEADS,
    _KNOWN_HEADS_MAX,
    decode_produce_request,
)
from echoless.protocol.request_fields import ELEMENTS_MAX

VERSIONS = range(3, 14)
TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")

partitions = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.none() | st.binary(max_size=200)), max_size=4
)
requests = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | st.text(max_size=200),
        "acks": st.integers(-(2**15), 2**15 - 1),
        "timeout_ms": st.integers(0, 2**31 - 1),
        "topics": st.lists(st.tuples(st.text(max_size=200), partitions), max_size=4),
    }
)


def encode(version, request) -> bytes:
    """The body as kio writes it."""
    from kio.serial import entity_writer

    module = importlib.import_module(f"kio.schema.produce.v{version}.request")
    topics = tuple(
        module.TopicProduceData(
            **({"topic_id": TOPIC_ID} if version >= 13 else {"name": name}),
            partition_data=tuple(
                module.PartitionProduceData(index=index, records=records) for index, records in rows
            ),
        )
        for name, rows in request["topics"]
    )
    entity = module.ProduceRequest(
        transactional_id=request["transactional_id"],
        acks=request["acks"],
        timeout=datetime.timedelta(milliseconds=request["timeout_ms"]),
        topic_data=topics,
    )
    out = io.BytesIO()
    entity_writer(module.ProduceRequest)(out, entity)
    return out.getvalue()


@pytest.mark.parametrize("view", [bytes, memoryview])
@pytest.mark.parametrize("version", VERSIONS)
@given(request=requests)
def test_what_kio_writes_is_read_back(version, view, request):
    """Every version gives the fields that went in, from small frames and from large ones."""
    frame = b"header" + encode(version, request)
    decoded = decode_produce_request(version, view(frame), 6)
    assert decoded[:3] == (request["transactional_id"], request["acks"], request["timeout_ms"])
    assert [
        (topic, [(index, None if data is None else bytes(data)) for index, data in rows])
        for topic, rows in decoded.topics
    ] == [(TOPIC_ID if version >= 13 else name, rows) for name, rows in request["topics"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_refused(version):
    """Every proper prefix is a DecodeError and nothing else."""
    whole = encode(
        version,
        {
            "transactional_id": "t",
            "acks": -1,
            "timeout_ms": 1,
            "topics": [("orders", [(0, b"records"), (1, None)])],
        },
    )
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_produce_request(version, whole[:size], 0)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.binary(max_size=100))
def test_any_bytes_give_a_request_or_a_decode_error(version, data):
    """Garbage raises DecodeError, whatever it claims."""
    try:
        decode_produce_request(version, data, 0)
    except DecodeError:
        return


@pytest.mark.parametrize("version", [8, 9])
def test_a_claimed_count_takes_no_memory(version):
    """An array that claims more elements than there are bytes is refused at its count."""
    flexible = version >= 9
    head = b"\x00" if flexible else b"\xff\xff"
    count = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
    with pytest.raises(DecodeError, match="elements"):
        decode_produce_request(version, head + b"\xff\xff\x00\x00\x00\x01" + count + bytes(50), 0)


def test_the_elements_of_a_request_are_bounded():
    """Topics and partitions count together; 100,000 rows held the event loop for half a second."""
    partition = struct.pack(">ii", 0, -1)
    head = b"\xff\xff" + bytes(6) + struct.pack(">i", 1) + b"\0\x01t"
    for version in (3, 8):
        listed = struct.pack(">i", ELEMENTS_MAX - 1) + partition * (ELEMENTS_MAX - 1)
        ((_, decoded),) = decode_produce_request(version, head + listed, 0).topics
        assert len(decoded) == ELEMENTS_MAX - 1
        listed = struct.pack(">i", ELEMENTS_MAX) + partition * ELEMENTS_MAX
        with pytest.raises(DecodeError, match="elements"):
            decode_produce_request(version, head + listed, 0)


def test_tagged_fields_are_passed_over():
    """Unknown tags after a partition, a topic and the request change nothing."""
    tag = b"\x01\x05\x02hi"
    body = b"\x00\xff\xff\x00\x00\x00\x01\x02\x02t\x02\x00\x00\x00\x03\x04abc" + tag * 3
    decoded = decode_produce_request(9, body, 0)
    assert decoded.topics == [("t", [(3, b"abc")])]


def test_records_of_a_large_frame_are_not_copied():
    """A view in gives views out."""
    frame = memoryview(
        bytearray(
            encode(
                7,
                {
                    "transactional_id": None,
                    "acks": 1,
                    "timeout_ms": 1,
                    "topics": [("t", [(0, b"x" * 50)])],
                },
            )
        )
    )
    records = decode_produce_request(7, frame, 0).topics[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj


@given(
    version=st.sampled_from(range(9, 14)),
    request=requests,
    rows=st.lists(partitions, min_size=1, max_size=4),
    cut=st.integers(0, 60),
)
def test_a_repeated_beginning_is_read_as_if_it_were_new(version, request, rows, cut):
    """Beginnings that were read before never change what is read now, nor what is refused."""
    for partitions_of_one in rows:
        for name, _ in request["topics"][:1]:
            request["topics"] = [(name, partitions_of_one)]
            data = encode(version, request)
            for whole in (data, data, data[: len(data) - cut], data + b"\0"):
                again = result(version, whole)
                _KNOWN_HEADS.clear()
                assert again == result(version, whole)
            assert result(version, data) == result(version, data)


@given(
    size=st.sampled_from((0, 100, 126, 127, 128, 200, 4095, 4096, 16_382)),
    tail=st.one_of(st.none(), st.binary(max_size=12)),
    place=st.integers(0, 12),
)
def test_a_known_beginning_and_one_row_are_read_as_by_the_loop(size, tail, place):
    """Whatever stands in the place of index, size, records and tags."""
    rows = {"transactional_id": None, "acks": 1, "timeout_ms": 5, "topics": [("t", [(0, b"r")])]}
    head = encode(9, rows)[:-9]
    data = encode(9, {**rows, "topics": [("t", [(0, (b"\0" + b"x" * size)[:size])])]})
    null = head + bytes(4) + b"\x80\0"  # its size is 0, in two bytes
    others = [] if tail is None else [data[: len(head) + place] + tail, data[:-3] + tail]
    for damaged in (data, data + b"\0", data[:-1], null + bytes(2), null + bytes(3), *others):
        _KNOWN_HEADS.clear()
        expected = result(9, damaged)
        result(9, encode(9, rows))
        assert len(_KNOWN_HEADS) == 1
        assert result(9, damaged) == expected


def result(version, data):
    """The request, or the error."""
    try:
        return decode_produce_request(version, data, 0)
    except DecodeError as error:
        return str(error)


def test_a_beginning_without_the_rest_is_refused():
    """A known beginning that announces partitions is no proof that they are there."""
    rows = {"transactional_id": None, "acks": 1, "timeout_ms": 5, "topics": [("t", [(0, b"x")])]}
    data = encode(9, rows)
    assert decode_produce_request(9, data, 0).topics[0].partitions == [(0, b"x")]
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            decode_produce_request(9, data[:size], 0)


def test_known_beginnings_are_bounded():
    """A client that invents topics takes no memory with them."""
    for number in range(2 * _KNOWN_HEADS_MAX):
        rows = {
            "transactional_id": None,
            "acks": 1,
            "timeout_ms": number,
            "topics": [("t" * 9, [(0, b"")])],
        }
        decode_produce_request(9, encode(9, rows), 0)
        assert len(_KNOWN_HEADS) <= _KNOWN_HEADS_MAX
