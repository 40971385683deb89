"""The hand-read Fetch request against kio: the same values, the same refusals."""

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
from echoless.protocol.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_request,
)
from echoless.protocol.request_fields import ELEMENTS_MAX
from echoless.protocol.request_walk import readable_request

VERSIONS = range(4, 18)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(FetchPartition, int32, int64, int32, int32, int32)
names = st.text(max_size=200)
topics = st.lists(
    st.tuples(names, st.uuids(), st.lists(partitions, max_size=4), st.lists(int32, max_size=3)),
    max_size=4,
)
requests = st.fixed_dictionaries(
    {
        "max_wait_ms": st.integers(0, 2**31 - 1),
        "min_bytes": int32,
        "bytes_max": int32,
        "isolation_level": st.integers(-128, 127),
        "session_id": int32,
        "session_epoch": int32,
        "topics": topics,
        "rack_id": names,
    }
)
SAMPLE = {
    "max_wait_ms": 500,
    "min_bytes": 1,
    "bytes_max": 2,
    "isolation_level": 1,
    "session_id": 9,
    "session_epoch": 3,
    "topics": [("orders", uuid.UUID(int=5), [FetchPartition(0, 1, 2, 3, 4)] * 2, [7, 8])],
    "rack_id": "rack",
}


def entity_of(version, request):
    """The request as a kio entity; every topic is also one that the session forgets."""
    module = importlib.import_module(f"kio.schema.fetch.v{version}.request")

    def topic(cls, name, topic_id, rows):
        key = {"topic_id": topic_id} if version >= 13 else {"topic": name}
        return cls(**key, partitions=tuple(rows))

    def partition(one):
        fields = {
            "partition": one.partition,
            "fetch_offset": one.offset,
            "partition_max_bytes": one.bytes_max,
        }
        if version >= 9:
            fields["current_leader_epoch"] = one.leader_epoch
        if version >= 12:
            fields["last_fetched_epoch"] = one.last_fetched_epoch
        return module.FetchPartition(**fields)

    fields = {
        "max_wait": datetime.timedelta(milliseconds=request["max_wait_ms"]),
        "min_bytes": request["min_bytes"],
        "max_bytes": request["bytes_max"],
        "isolation_level": request["isolation_level"],
        "topics": tuple(
            topic(module.FetchTopic, name, topic_id, map(partition, rows))
            for name, topic_id, rows, _ in request["topics"]
        ),
    }
    if version >= 7:
        fields["session_id"] = request["session_id"]
        fields["session_epoch"] = request["session_epoch"]
        fields["forgotten_topics_data"] = tuple(
            topic(module.ForgottenTopic, name, topic_id, forgotten)
            for name, topic_id, _, forgotten in request["topics"]
        )
    if version >= 11:
        fields["rack_id"] = request["rack_id"]
    if version < 15:
        fields["replica_id"] = 3
    else:
        fields["replica_state"] = module.ReplicaState(replica_id=3, replica_epoch=4)
    if version >= 12:
        fields["cluster_id"] = "a cluster"
    return module.FetchRequest(**fields)


def encode(version, request) -> bytes:
    """The body as kio writes it."""
    from kio.serial import entity_writer

    entity, out = entity_of(version, request), io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def expected(version, request) -> FetchRequest:
    """The request, as far as the version can carry it."""
    lost = {}
    if version < 12:
        lost["last_fetched_epoch"] = -1
    if version < 9:
        lost["leader_epoch"] = -1
    return FetchRequest(
        request["max_wait_ms"],
        request["min_bytes"],
        request["bytes_max"],
        request["isolation_level"],
        request["session_epoch"] if version >= 7 else -1,
        [
            FetchTopic(topic_id if version >= 13 else name, [one._replace(**lost) for one in rows])
            for name, topic_id, rows, _ in request["topics"]
        ],
        3,
        request["session_id"] if version >= 7 else 0,
        [
            ForgottenTopic(topic_id if version >= 13 else name, tuple(forgotten))
            for name, topic_id, _, forgotten in request["topics"]
        ]
        if version >= 7
        else (),
    )


@pytest.mark.parametrize("view", [bytes, memoryview])
@pytest.mark.parametrize("version", VERSIONS)
@given(request=requests)
def test_what_kio_writes_is_read_back(version, view, request):
    """Every version gives the fields that went in, from small frames and from large ones."""
    frame = b"header" + encode(version, request)
    found, right = decode_fetch_request(version, view(frame), 6), expected(version, request)
    assert found._replace(forgotten=list(found.forgotten)) == right._replace(
        forgotten=list(right.forgotten)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_refused(version):
    """Every proper prefix is a DecodeError and nothing else."""
    whole = encode(version, SAMPLE)
    assert decode_fetch_request(version, whole, 0) == expected(version, SAMPLE)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_fetch_request(version, whole[:size], 0)


@pytest.mark.parametrize("version", VERSIONS)
@given(at=st.floats(0, 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_where_kio_refuses_it(version, at, byte):
    """Both read the same request, or neither reads one; kio alone looks into tagged fields."""
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    whole = bytearray(encode(version, SAMPLE))
    # up to the tagged fields at the end: a length of one byte each, and the names of the sample
    tagged_size = 0 if version < 12 else 1 + 2 + 10 + (0 if version < 15 else 2 + 13)
    whole[int(at * (len(whole) - tagged_size - 1))] = byte
    frame = bytes(whole)
    cls = importlib.import_module(f"kio.schema.fetch.v{version}.request").FetchRequest
    try:
        entity, _ = entity_reader(cls)(readable_request(cls, frame, 0), 0)
    except (DecodeError, SerialError, OverflowError, ValueError):
        with pytest.raises(DecodeError):
            decode_fetch_request(version, frame, 0)
        return
    read = decode_fetch_request(version, frame, 0)
    assert [
        [(one.partition, one.fetch_offset, one.partition_max_bytes) for one in topic.partitions]
        for topic in entity.topics
    ] == [[one[:3] for one in topic.partitions] for topic in read.topics]
    assert read.max_wait_ms == entity.max_wait // datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.binary(max_size=100))
def test_any_bytes_give_a_request_or_a_decode_error(version, data):
    """Garbage raises DecodeError, whatever it claims."""
    try:
        decode_fetch_request(version, data, 0)
    except DecodeError:
        return


@pytest.mark.parametrize("version", [11, 12])
def test_a_claimed_count_takes_no_memory(version):
    """An array that claims more elements than there are bytes is refused at its count."""
    count = b"\xff\xff\xff\xff\x07" if version >= 12 else b"\x7f\xff\xff\xff"
    with pytest.raises(DecodeError, match="elements"):
        decode_fetch_request(version, bytes(25) + count + bytes(50), 0)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("path", ["topics", "name", "partitions", "forgotten", "rack"])
def test_null_is_refused(version, path):
    """No array and no string of this request may be null."""
    null = b"\0" if version >= 12 else b"\xff\xff\xff\xff"
    null_text = b"\0" if version >= 12 else b"\xff\xff"
    one, name = (b"\2", b"\2t") if version >= 12 else (b"\0\0\0\1", b"\0\1t")
    body = (
        bytes(25)
        + {
            "topics": null,
            "name": one + null_text,
            "partitions": one + name + null,
            "forgotten": (b"\1" if version >= 12 else bytes(4)) + null,
            "rack": (b"\1\1" if version >= 12 else bytes(8)) + null_text,
        }[path]
    )
    with pytest.raises(DecodeError, match=r"an array of -1|a field of -1"):
        decode_fetch_request(version, body + bytes(50), 0)


def test_the_elements_of_a_request_are_bounded():
    """Topics, partitions and those that a session forgets count together."""
    head, topic = bytes(25), b"\0\0" + bytes(4)
    most = ELEMENTS_MAX // 2
    listed = struct.pack(">i", most) + topic * most
    decoded = decode_fetch_request(10, head + listed + listed, 0)
    assert len(decoded.topics) == most
    with pytest.raises(DecodeError, match="elements"):
        decode_fetch_request(10, head + listed + struct.pack(">i", most + 1) + topic * most, 0)


def test_tagged_fields_are_skipped():
    """Unknown tags after a partition, a topic, a forgotten topic and the request change nothing."""
    tag = b"\x01\x05\x02hi"
    partition = struct.pack(">iiqiqi", 3, 1, 9, 2, -1, 100) + tag
    body = bytes(21) + bytes(4) + b"\x02\x02t\x02" + partition + tag + b"\x02\x02u\x01" + tag
    decoded = decode_fetch_request(12, body + b"\x01" + tag, 0)
    assert decoded.topics == [("t", [(3, 9, 100, 1, 2)])]
