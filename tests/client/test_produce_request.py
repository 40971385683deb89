"""The hand-packed Produce request is the one that kio writes."""

from __future__ import annotations

import pytest

from echoless.client.messages import encode_produce, encode_produce_of, encode_request
from echoless.client.produce_request import PartitionBatch

BATCHES = [b"", b"x" * 126, b"x" * 127, b"x" * 70_000]


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("batch", BATCHES, ids=len)
def test_bytes_are_kios(version, batch):
    """Every version, with sizes around the ends of their encodings."""
    topic = "t" * 200
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 27_000,
        "topic_data": [
            {"name": topic, "partition_data": [{"index": 7, "records": batch}]},
        ],
    }
    parts = encode_produce(version, 5, topic, 7, batch, timeout_ms=27_000)
    assert b"".join(parts) == encode_request("produce", version, 5, fields)


@pytest.mark.parametrize("version", range(3, 13))
def test_batches_of_several_topics_share_a_request(version):
    """Grouped by topic, in the order in which topics and partitions were given."""
    batches = [("b", 2), ("a", 0), ("b", 0), ("a", 1)]
    parts = encode_produce_of(
        version,
        5,
        [PartitionBatch(*place, b"%d" % n) for n, place in enumerate(batches)],
        timeout_ms=1,
    )
    rows = {"b": [(2, b"0"), (0, b"2")], "a": [(0, b"1"), (1, b"3")]}
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [{"index": index, "records": data} for index, data in ones],
            }
            for topic, ones in rows.items()
        ],
    }
    assert b"".join(parts) == encode_request("produce", version, 5, fields)
