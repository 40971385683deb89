"""The hand-read requests that a producer begins with, against kio: the same values, the same bytes refused."""

from __future__ import annotations

import dataclasses
import datetime
import io
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echoless.broker.handlers import api_versions, init_producer_id, metadata
from echoless.protocol.api_versions import (
    ApiVersionsRequest,
    ApiVersionsRow,
    encode_api_versions_response,
)
from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.init_producer_id import (
    InitProducerIdRequest,
    encode_init_producer_id_response,
)
from echoless.protocol.metadata_request import MetadataRequest, WantedTopic
from echoless.protocol.registry import Api
from echoless.protocol.request_fields import ELEMENTS_MAX
from echoless.protocol.typed_requests import typed
from tests.support.raw_client import message, nested

APIS = {
    api_versions.API: ApiVersionsRequest,
    metadata.API: MetadataRequest,
    init_producer_id.API: InitProducerIdRequest,
}
of_each_api = pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
versions = {api: st.integers(api.version_min, api.version_max) for api in APIS}

int16, int64 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=200)
topics = st.lists(st.tuples(texts, st.none() | st.uuids()), max_size=4)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "client_software_name": texts,
    "client_software_version": texts,
    "topics": topics,
    "allow_auto_topic_creation": st.booleans(),
    "include_cluster_authorized_operations": st.booleans(),
    "include_topic_authorized_operations": st.booleans(),
    "transactional_id": st.none() | texts,
    "transaction_timeout": st.integers(0, 2**31 - 1).map(
        lambda ms: datetime.timedelta(milliseconds=ms)
    ),
    "producer_id": int64,
    "producer_epoch": int16,
    "enable2_pc": st.booleans(),
    "keep_prepared_txn": st.booleans(),
}


@st.composite
def bodies(draw: st.DrawFn, api: Api, version: int) -> bytes:
    """A request with any values, as kio writes it."""
    cls = message(api.name, version, "Request")
    values = {field.name: draw(VALUES[field.name]) for field in dataclasses.fields(cls)}
    if "topics" in values:
        values["topics"] = wanted_topics(draw, version, values["topics"])
    return written(cls(**values))


def wanted_topics(draw: st.DrawFn, version: int, rows: list[tuple[str, Any]]) -> Any:
    """kio's topics; null for all, and null names, where the version has them."""
    if version >= 1 and draw(st.integers(0, 4)) == 0:
        return None
    cls = nested("metadata", version, "MetadataRequestTopic")
    if version < 10:
        return tuple(cls(name=name) for name, _ in rows)
    return tuple(
        cls(name=draw(st.none() | st.just(name)), topic_id=topic_id) for name, topic_id in rows
    )


def written(entity: Any) -> bytes:
    from kio.serial import entity_writer

    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def by_kio(api: Api, version: int, body: bytes) -> Any:
    """The request as kio reads it; None if it refuses the bytes."""
    try:
        entity = dataclasses.replace(api, read_request=None).decode_request(version, body, 0)
    except DecodeError:
        return None
    read = typed(APIS[api], entity)
    if isinstance(read, MetadataRequest) and read.topics is not None:
        return read._replace(topics=tuple(typed(WantedTopic, one) for one in read.topics))
    if isinstance(read, InitProducerIdRequest):
        timeout_ms = entity.transaction_timeout // datetime.timedelta(milliseconds=1)
        return read._replace(timeout_ms=timeout_ms)
    return read


def by_hand(api: Api, version: int, body: bytes | memoryview) -> Any:
    """The request as the broker reads it; None if it refuses the bytes."""
    try:
        return api.decode_request(version, body, 0)
    except DecodeError:
        return None


@of_each_api
@settings(max_examples=60)
@given(data=st.data())
def test_what_kio_writes_is_read_as_kio_reads_it(api: Api, data: Any) -> None:
    """Every version gives the same fields, from small frames and from large ones."""
    version = data.draw(versions[api])
    body = data.draw(bodies(api, version))
    expected = by_kio(api, version, body)
    assert expected is not None
    assert by_hand(api, version, body) == by_hand(api, version, memoryview(body)) == expected


@of_each_api
@settings(max_examples=60)
@given(data=st.data())
def test_any_bytes_are_read_or_refused_as_by_kio(api: Api, data: Any) -> None:
    """Cut off, with bytes changed, or with bytes of its own: nothing but a value or a `DecodeError`."""
    version = data.draw(versions[api])
    body = bytearray(data.draw(bodies(api, version) | st.binary(max_size=60)))
    for position in data.draw(st.lists(st.integers(0, max(0, len(body) - 1)), max_size=3)):
        body[position : position + 1] = data.draw(st.binary(max_size=4))
    assert by_hand(api, version, bytes(body)) == by_kio(api, version, bytes(body))


@of_each_api
@settings(max_examples=60)
@given(data=st.data())
def test_a_request_cut_anywhere_is_refused(api: Api, data: Any) -> None:
    """Every proper prefix is a `DecodeError` and nothing else."""
    version = data.draw(versions[api])
    body = data.draw(bodies(api, version))
    assert [by_hand(api, version, body[:size]) for size in range(len(body))] == [None] * len(body)


@pytest.mark.parametrize("version", [0, 8, 9, 12])
def test_the_number_of_topics_is_bounded(version: int) -> None:
    """Each becomes an object of many times its bytes, and all are read in one step of the loop."""
    size = ELEMENTS_MAX + 1
    count = size.to_bytes(4) if version < 9 else b"\xaa\xc3\x01"
    with pytest.raises(DecodeError, match="an array of 25001 elements"):
        metadata.API.decode_request(version, count + bytes(30 * size), 0)


@given(
    version=st.integers(api_versions.API.version_min, api_versions.API.version_max),
    code=st.sampled_from(ErrorCode),
    rows=st.lists(st.builds(ApiVersionsRow, int16, int16, int16), max_size=200),
)
@example(version=4, code=ErrorCode.NONE, rows=[ApiVersionsRow(1, 2, 3)] * 127)
def test_api_versions_are_packed_as_kio_packs_them(
    version: int, code: ErrorCode, rows: list[ApiVersionsRow]
) -> None:
    """It holds in every version, for counts of one byte and of two."""
    fields = [
        {"api_key": one.api_key, "min_version": one.version_min, "max_version": one.version_max}
        for one in rows
    ]
    assert encode_api_versions_response(version, code, rows) == api_versions.API.encode_response(
        version, {"throttle_time": 0, "error_code": code, "api_keys": fields}
    )


@given(
    version=st.integers(init_producer_id.API.version_min, init_producer_id.API.version_max),
    code=st.sampled_from(ErrorCode),
    producer_id=int64,
    producer_epoch=int16,
)
def test_a_producer_id_is_packed_as_kio_packs_it(
    version: int, code: ErrorCode, producer_id: int, producer_epoch: int
) -> None:
    """It holds in every version."""
    fields = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    kept = (producer_id ^ 1, producer_epoch ^ 1)
    fields |= {"ongoing_txn_producer_id": kept[0], "ongoing_txn_producer_epoch": kept[1]}
    assert encode_init_producer_id_response(
        version, code, producer_id, producer_epoch, kept
    ) == init_producer_id.API.encode_response(
        version, {"throttle_time": 0, "error_code": code, **fields}
    )
