"""The hand-packed Fetch response against kio's schemas."""

from __future__ import annotations

import importlib
import uuid

import pytest

from echoless.protocol.errors import ErrorCode
from echoless.protocol.fetch import (
    PartitionFetched,
    encode_fetch_response,
    join_rows,
    pack_row,
)
from echoless.protocol.node_endpoints import LeaderHint, NodeEndpoint

LEADER = LeaderHint(5, 9, NodeEndpoint(5, "h", 9092))
TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def _whole(body):
    return body if isinstance(body, bytes) else b"".join(body)


@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("version", range(4, 18))
@pytest.mark.parametrize("aborted", [None, (), ((7, 3), (8, 5))])
def test_reads_back_with_kio(version, size, aborted):
    """Every version carries records, offsets, aborted transactions and errors where kio looks for them."""
    from kio.serial import entity_reader

    topic = TOPIC_ID if version >= 13 else "orders"
    partitions = [
        PartitionFetched(0, ErrorCode.NONE, 10, 9, 1, b"r" * size, (4, 8), aborted),
        PartitionFetched(1, ErrorCode.OFFSET_OUT_OF_RANGE),
        PartitionFetched(2, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LEADER),
    ]
    found = encode_fetch_response(version, ErrorCode.NONE, [(topic, partitions)], 77)
    data = found if isinstance(found, bytes) else b"".join(found)
    assert isinstance(found, bytes) == (size == 300)
    module = importlib.import_module(f"kio.schema.fetch.v{version}.response")
    entity, read = entity_reader(module.FetchResponse)(data, 0)
    assert read == len(data)
    (response,) = entity.responses
    first, second, third = response.partitions
    assert first.records == b"r" * size
    assert (first.high_watermark, first.last_stable_offset) == (10, 9)
    rows = first.aborted_transactions
    found = None if rows is None else tuple((one.producer_id, one.first_offset) for one in rows)
    assert found == aborted
    assert second.aborted_transactions is None
    assert first.log_start_offset == 1 if version >= 5 else True
    assert second.error_code == 1
    joined = join_rows(
        version,
        [(topic, 3, [b"".join(pack_row(version, row)) for row in partitions])],
        size,
        [LEADER],
    )
    without_session = encode_fetch_response(version, ErrorCode.NONE, [(topic, partitions)])
    assert _whole(joined) == _whole(without_session)
    if version >= 7:
        assert entity.session_id == 77
    if version >= 12:
        assert (first.diverging_epoch.epoch, first.diverging_epoch.end_offset) == (4, 8)
        hint = (third.current_leader.leader_id, third.current_leader.leader_epoch)
        assert hint == ((5, 9) if version >= 16 else (-1, -1))
    if version >= 16:
        (endpoint,) = entity.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == LEADER.endpoint
