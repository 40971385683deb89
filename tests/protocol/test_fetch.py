"""The hand-packed Fetch response against kio's schemas."""

from __future__ import annotations

import importlib
import uuid

import pytest

from echoless.protocol.errors import ErrorCode
from echoless.protocol.fetch import PartitionFetched, encode_fetch_response

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("version", range(4, 18))
def test_reads_back_with_kio(version, size):
    """Every version carries records, offsets and errors where kio looks for them."""
    from kio.serial import entity_reader

    topic = TOPIC_ID if version >= 13 else "orders"
    partitions = [
        PartitionFetched(0, ErrorCode.NONE, 10, 9, 1, b"r" * size, (4, 8)),
        PartitionFetched(1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    found = encode_fetch_response(version, ErrorCode.NONE, [(topic, partitions)], 77)
    data = found if isinstance(found, bytes) else b"".join(found)
    assert isinstance(found, bytes) == (size == 300)
    module = importlib.import_module(f"kio.schema.fetch.v{version}.response")
    entity, read = entity_reader(module.FetchResponse)(data, 0)
    assert read == len(data)
    (response,) = entity.responses
    first, second = response.partitions
    assert first.records == b"r" * size
    assert (first.high_watermark, first.last_stable_offset) == (10, 9)
    assert second.error_code == 1
    if version >= 7:
        assert entity.session_id == 77
    if version >= 12:
        assert (first.diverging_epoch.epoch, first.diverging_epoch.end_offset) == (4, 8)
