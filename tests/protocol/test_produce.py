"""The hand-packed Produce response against kio's schemas."""

from __future__ import annotations

import importlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import ErrorCode
from echoless.protocol.node_endpoints import LeaderHint, NodeEndpoint
from echoless.protocol.produce import (
    PartitionProduced,
    RecordError,
    _known_topic_head,
    encode_produce_response,
    encode_produced,
)

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
VERSIONS = range(3, 14)


def decode(version, data):
    from kio.serial import entity_reader

    module = importlib.import_module(f"kio.schema.produce.v{version}.response")
    entity, size = entity_reader(module.ProduceResponse)(data, 0)
    assert size == len(data), "bytes are left over"
    return entity


def encode(version, partitions):
    topic = TOPIC_ID if version >= 13 else "orders"
    return encode_produce_response(version, [(topic, partitions)])


@pytest.mark.parametrize("version", VERSIONS)
def test_success_reads_back_with_kio(version):
    """Every version carries index, offset and times where kio looks for them."""
    entity = decode(version, encode(version, [PartitionProduced(7, ErrorCode.NONE, 42, 1000, 5)]))
    (topic,) = entity.responses
    assert (topic.topic_id if version >= 13 else topic.name) == (
        TOPIC_ID if version >= 13 else "orders"
    )
    (partition,) = topic.partition_responses
    assert (partition.index, partition.error_code, partition.base_offset) == (7, 0, 42)
    assert partition.log_append_time.timestamp() == 1.0
    if version >= 5:
        assert partition.log_start_offset == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_read_back_with_kio(version):
    """Error message, record errors and the leader hint appear from the version that has them."""
    failed = PartitionProduced(
        1,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        error_message="elsewhere",
        record_errors=(RecordError(3, "bad"),),
        current_leader=LeaderHint(2, 9, NodeEndpoint(2, "h", 9092, "r")),
    )
    entity = decode(version, encode(version, [failed, PartitionProduced(2)]))
    first, second = entity.responses[0].partition_responses
    assert (first.error_code, first.base_offset) == (6, -1)
    assert (second.index, second.error_code) == (2, 0)
    if version >= 8:
        assert first.error_message == "elsewhere"
        assert first.record_errors[0].batch_index == 3
        assert first.record_errors[0].batch_index_error_message == "bad"
    if version >= 10:
        assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (2, 9)
        assert [one.node_id for one in entity.node_endpoints] == [2]
        assert (entity.node_endpoints[0].host, entity.node_endpoints[0].port) == ("h", 9092)
        assert entity.node_endpoints[0].rack == "r"


@pytest.mark.parametrize("version", VERSIONS)
def test_each_leader_has_one_endpoint(version):
    """However many rows name it, and whether its address is known or not; a success names none."""
    hints = [
        LeaderHint(3, 1, NodeEndpoint(3, "::1", 1)),
        LeaderHint(3, 2, NodeEndpoint(3, "::1", 1)),
        LeaderHint(4, 1),
        LeaderHint(5, 1, NodeEndpoint(5, "five", 5)),
    ]
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    rows = [PartitionProduced(index, code, current_leader=hint) for index, hint in enumerate(hints)]
    if version >= 10:
        entity = decode(version, encode(version, rows))
        found = [(one.node_id, one.host, one.port, one.rack) for one in entity.node_endpoints]
        assert found == [(3, "::1", 1, None), (5, "five", 5, None)]
        assert [
            row.current_leader.leader_id for row in entity.responses[0].partition_responses
        ] == ([3, 3, 4, 5])
    succeeded = PartitionProduced(0, current_leader=hints[0])
    assert encode(version, [succeeded]) == encode(version, [PartitionProduced(0)])


@pytest.mark.parametrize("version", VERSIONS)
@given(
    index=st.integers(0, 2**31 - 1),
    code=st.sampled_from((ErrorCode.NONE, ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)),
    offsets=st.tuples(*[st.integers(-1, 2**63 - 1)] * 3),
)
def test_one_partition_is_packed_as_a_list_of_one(version, index, code, offsets):
    """The short way for one row makes the same bytes, with an error and without."""
    topic = TOPIC_ID if version >= 13 else "orders"
    row = PartitionProduced(index, code, *offsets)
    expected = encode_produce_response(version, [(topic, [row])])
    assert encode_produced(version, topic, row) == expected


def test_only_names_that_topics_can_have_are_kept():
    """A client that asks for long names of topics that cannot be takes no memory with their answers."""
    _known_topic_head.cache_clear()
    refused = [PartitionProduced(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    for name, kept in (("t" * 249, 1), ("t" * 250, 1), ("u" * 30_000, 1), ("v", 2)):
        body = encode_produce_response(9, [(name, refused)])
        assert name.encode() in body
        assert _known_topic_head.cache_info().currsize == kept
