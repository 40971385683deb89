"""The throttle time gets into every answer that has one, packed or not, and changes nothing else."""

from __future__ import annotations

import dataclasses
import datetime
import io
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from echoless.broker.handlers.apis import API_BY_KEY, APIS
from echoless.broker.handlers.throttle_time import throttled
from echoless.broker.network.request import NO_RESPONSE
from echoless.broker.network.turns import ManyRows
from echoless.protocol.produce import PartitionProduced, encode_produce_response
from tests.support.kio_requests import smallest_response
from tests.support.raw_client import message

PAUSE_MS = 1234567
VERSIONS = [
    (api, version) for api in APIS for version in range(api.version_min, api.version_max + 1)
]


def read(api: Any, version: int, packed: Any) -> Any:
    return entity_reader(message(api.name, version, "Response"))(packed, 0)[0]


@pytest.mark.parametrize(
    ("api", "version"), VERSIONS, ids=lambda one: getattr(one, "name", str(one))
)
def test_a_packed_answer_is_overwritten_in_the_right_place(api: Any, version: int) -> None:
    """The place is that of kio's schema of this version; without the field nothing changes."""
    answer = smallest_response(api.name, version, elements=1)
    out = io.BytesIO()
    entity_writer(type(answer))(out, answer)
    after = read(api, version, throttled(api, version, out.getvalue(), PAUSE_MS))
    if hasattr(answer, "throttle_time"):
        assert after.throttle_time == datetime.timedelta(milliseconds=PAUSE_MS)
        after = dataclasses.replace(after, throttle_time=answer.throttle_time)
    assert after == answer


def test_an_answer_in_pieces_and_one_with_rows() -> None:
    """Fetch's answer is several buffers; produce has its rows before the field."""
    fetch, produce = API_BY_KEY[1], API_BY_KEY[0]
    pieces = throttled(fetch, 4, [b"\0\0\0\0\0\0", b"records"], 1)
    assert pieces == [b"\0\0\0\1\0\0", b"records"]
    for version in range(produce.version_min, 13):
        packed = encode_produce_response(version, [("t", [PartitionProduced(0, 0)])])
        after = read(produce, version, throttled(produce, version, packed, PAUSE_MS))
        assert after.throttle_time == datetime.timedelta(milliseconds=PAUSE_MS)
        assert len(after.responses[0].partition_responses) == 1


def test_an_answer_that_is_packed_later() -> None:
    """Its fields say so; one of many rows stays one."""
    api = API_BY_KEY[19]
    assert throttled(api, 7, {"topics": []}, 5) == {"topics": [], "throttle_time": 5}
    assert isinstance(throttled(api, 7, ManyRows(topics=[]), 5), ManyRows)
    assert throttled(api, 7, NO_RESPONSE, 5) is NO_RESPONSE
