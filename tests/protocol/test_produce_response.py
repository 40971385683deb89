"""The Produce response is read as the broker writes it, which `test_produce.py` compares with kio."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.answers import Meaning, PartitionProduceResponse, answer_of
from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.node_endpoints import LeaderHint, NodeEndpoint
from echoless.protocol.produce import (
    PartitionProduced,
    RecordError,
    encode_produce_response,
)
from echoless.protocol.produce_response import VERSION_MAX, ProducedRow, read_produce_response

VERSIONS = st.integers(3, VERSION_MAX)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-1, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
PARTITIONS = st.builds(
    PartitionProduced,
    partition=INT32,
    error_code=st.sampled_from(ErrorCode),
    base_offset=INT64,
    log_append_time=INT64,
    log_start_offset=INT64,
    error_message=st.none() | TEXTS,
    record_errors=st.lists(st.builds(RecordError, INT32, TEXTS), max_size=3).map(tuple),
    current_leader=st.none()
    | st.builds(
        LeaderHint, INT32, INT32, st.none() | st.builds(NodeEndpoint, INT32, TEXTS, INT32, TEXTS)
    ),
)
TOPICS = st.lists(st.tuples(TEXTS, st.lists(PARTITIONS, max_size=4)), max_size=3)


def expected(version: int, topic: str, one: PartitionProduced) -> ProducedRow:
    """The row as far as the version carries it; errors alone carry a message and a leader."""
    row = ProducedRow(topic, one.partition, one.error_code, one.base_offset, one.log_append_time)
    if version >= 8 and (version < 9 or one.error_code):
        row = row._replace(error_message=one.error_message)
    if version >= 10 and one.error_code:
        row = row._replace(current_leader=one.current_leader and one.current_leader[:2])
    return row


@given(VERSIONS, TOPICS, st.binary(max_size=3))
def test_what_the_broker_writes_is_read(version, topics, before):
    """Every version, wherever in the frame the body begins."""
    frame = before + encode_produce_response(version, topics)
    rows = [expected(version, topic, one) for topic, partitions in topics for one in partitions]
    assert read_produce_response(version, frame, len(before)) == rows


@pytest.mark.parametrize("version", [10, 11, 12])
@pytest.mark.parametrize("unknown_first", [True, False])
def test_a_leader_is_found_among_other_tagged_fields(version, unknown_first):
    """Fields that are not known here are skipped."""
    unknown, leader = b"\x07\x02ab", b"\x00\x09" + struct.pack(">ii", 5, 8) + b"\0"
    tags = b"\x02" + (unknown + leader if unknown_first else leader + unknown)
    row = struct.pack(">ihqqq", 3, 6, -1, -1, -1) + b"\x01\x00" + tags
    stored = struct.pack(">ihqqq", 4, 0, 17, 1000, 0) + b"\x01\x00\x00"
    frame = b"\x02\x02t\x03" + row + stored + b"\0"
    assert read_produce_response(version, frame, 0) == [
        ProducedRow("t", 3, 6, -1, -1, None, (5, 8)),
        ProducedRow("t", 4, 0, 17, 1000),
    ]


@given(VERSIONS, TOPICS, st.data())
def test_a_frame_that_ends_too_early_is_refused(version, topics, data):
    """Cut off anywhere in the rows: never a row that the broker did not write."""
    whole = encode_produce_response(version, topics)
    cut = data.draw(st.integers(0, len(whole) - 1))
    rows = read_produce_response(version, whole, 0)
    try:
        found = read_produce_response(version, whole[:cut], 0)
    except DecodeError:
        return
    assert found == rows


@given(VERSIONS, st.binary(max_size=200))
def test_garbage_is_refused_or_read(version, garbage):
    """No other exception, and no more rows than the bytes can hold."""
    try:
        rows = read_produce_response(version, garbage, 0)
    except DecodeError:
        return
    assert len(rows) <= len(garbage)


def test_a_code_that_no_one_here_knows_is_an_answer():
    """The producer fails the batch for it; the connection goes on."""
    answer = answer_of(ProducedRow("t", 0, 1234, -1, -1, "what?"))
    assert answer == PartitionProduceResponse(1234, message="1234 (what?)")
    assert answer.meaning is Meaning.REFUSED
