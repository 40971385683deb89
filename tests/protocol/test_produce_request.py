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
