"""The hand-packed Produce request is the one that kio writes."""

from __future__ import annotations

import pytest

from client.messages import encode_produce, encode_request

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
