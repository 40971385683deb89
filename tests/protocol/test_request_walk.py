"""The walk before kio: it ends where kio ends, believes no count, and cuts unknown tags out."""

from __future__ import annotations

import dataclasses
import functools
import io
import struct
import typing
from collections.abc import Iterator
from types import NoneType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echoless.broker.handlers.apis import API_BY_NAME
from echoless.protocol import request_walk
from echoless.protocol.errors import DecodeError
from echoless.protocol.request_fields import ELEMENTS_MAX
from echoless.protocol.request_walk import readable_request
from tests.support.kio_requests import smallest_request
from tests.support.raw_client import message

APIS = API_BY_NAME
FETCH_BY_KIO = dataclasses.replace(APIS["fetch"], read_request=None)
METADATA_BY_KIO = dataclasses.replace(APIS["metadata"], read_request=None)
"""The broker reads these requests by hand; the schema of Fetch has a tagged field that kio knows."""
SERVED = [
    (api.name, version)
    for api in APIS.values()
    for version in range(api.version_min, api.version_max + 1)
]
BOTH_ENCODINGS = sorted(
    {(api.name, api.version_max) for api in APIS.values()}
    | {
        (api.name, api.flexible_from - 1)
        for api in APIS.values()
        if api.serves(api.flexible_from - 1)
    }
)
"""The newest version of every API, and its newest with fixed lengths."""
CLAIMS = {
    "int32 max": struct.pack(">i", 2**31 - 1),
    "int32 min": struct.pack(">i", -(2**31)),
    "varint max": b"\xff\xff\xff\xff\x0f",
    "int16 max": struct.pack(">h", 2**15 - 1),
    "varint without end": b"\x80" * 6,
}


@functools.cache
def encoded(name: str, version: int, elements: int) -> bytes:
    """The smallest valid body whose arrays have `elements` entries."""
    from kio.serial import entity_writer

    request = smallest_request(name, version, elements=elements)
    buffer = io.BytesIO()
    write: Any = entity_writer(type(request))
    write(buffer, request)
    return buffer.getvalue()


def walked_to(name: str, version: int, body: bytes) -> int:
    """The position at which the walk ends."""
    walk = request_walk._Walk(body, 0)
    request_walk._entity_step(message(name, version, "Request"))(walk)
    return walk.position


@pytest.mark.parametrize("elements", [0, 1, 3])
@pytest.mark.parametrize(("name", "version"), SERVED)
def test_the_walk_ends_where_the_request_ends(name, version, elements):
    """The walk knows every field of every version, or it would end elsewhere."""
    body = encoded(name, version, elements)
    assert walked_to(name, version, body) == len(body)
    assert readable_request(message(name, version, "Request"), body, 0) is body


def arrays(cls: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The arrays of the schema, and whether each may be null."""
    for field in dataclasses.fields(cls):
        parts = request_walk._parts(field.type)
        if "tag" in field.metadata or not any(typing.get_origin(one) is tuple for one in parts):
            continue
        yield (*path, field.name), NoneType in typing.get_args(field.type)
        for nested in filter(dataclasses.is_dataclass, parts):
            yield from arrays(nested, (*path, field.name))


def with_null(cls: Any, path: tuple[str, ...]) -> bytes:
    """A body with one element in each array, and null at `path`."""
    parts = []
    for field in dataclasses.fields(cls):
        if "tag" in field.metadata:
            continue
        below = path[1:] if path[:1] == (field.name,) else ("",)
        parts.append(_with_null(field, cls.__flexible__, below))
    return b"".join(parts) + b"\0" * cls.__flexible__


def _with_null(field: Any, is_flexible: bool, path: tuple[str, ...]) -> bytes:
    annotations = request_walk._parts(field.type)
    nested = next((one for one in annotations if dataclasses.is_dataclass(one)), None)
    is_array = any(typing.get_origin(one) is tuple for one in annotations)
    if is_array and not path:
        return b"\0" if is_flexible else struct.pack(">i", -1)
    if nested is not None:
        one = with_null(nested, path)
    else:
        kafka_type = field.metadata["kafka_type"]
        width = request_walk._FIXED_SIZES.get(kafka_type)
        text = b"\2x" if is_flexible else b"\0\1x"
        one = bytes(width) if width else text
    count = b"\2" if is_flexible else struct.pack(">i", 1)
    return count + one if is_array else one


NULLS = [
    (name, version, path, may_be_null)
    for name, version in SERVED
    if APIS[name].read_request is None  # the others are read by hand, and tested separately
    for path, may_be_null in arrays(message(name, version, "Request"))
]


@pytest.mark.parametrize(
    ("name", "version", "path", "may_be_null"),
    NULLS,
    ids=[f"{name}-{version}-{'.'.join(path)}" for name, version, path, _ in NULLS],
)
def test_null_is_refused_where_the_schema_allows_none(name, version, path, may_be_null):
    """Handlers loop over arrays: what is null where it may not be never reaches them."""
    body = with_null(message(name, version, "Request"), path)
    if may_be_null:
        APIS[name].decode_request(version, body, 0)
        return
    with pytest.raises(DecodeError, match=f"{name} v{version} request: {path[-1]} is null"):
        APIS[name].decode_request(version, body, 0)


def decode(name: str, version: int, body: bytes) -> None:
    """A value or `DecodeError`; anything else is what these tests are after."""
    try:
        APIS[name].decode_request(version, body, 0)
    except DecodeError:
        return


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize(("name", "version"), BOTH_ENCODINGS)
def test_a_claim_anywhere_ends_in_a_value_or_an_error(name, version, claim):
    """2^31 - 1 elements, written over every byte in turn, take neither memory nor the process."""
    body = encoded(name, version, 1)
    for position in range(len(body)):
        decode(name, version, body[:position] + claim + body[position + len(claim) :])


@pytest.mark.parametrize(("name", "version"), SERVED)
def test_a_request_cut_anywhere_is_refused(name, version):
    """Every proper prefix is a DecodeError."""
    body = encoded(name, version, 1)
    for size in range(len(body)):
        with pytest.raises(DecodeError):
            APIS[name].decode_request(version, body[:size], 0)


def test_a_count_that_fits_its_bytes_is_bounded_all_the_same():
    """A request of many tiny elements would take a hundred times its bytes."""
    names = b"\0\0" * (ELEMENTS_MAX + 1)
    body = struct.pack(">i", ELEMENTS_MAX + 1) + names
    with pytest.raises(DecodeError, match="array elements"):
        METADATA_BY_KIO.decode_request(1, body, 0)


def test_unknown_tagged_fields_are_ignored():
    """The protocol requires it: a newer client may send fields that this broker does not know."""
    body = encoded("metadata", 12, 1)
    assert body[-1:] == b"\0"
    tagged = body[:-1] + b"\x02\x05\x03abc\x96\x01\x00"
    expected = METADATA_BY_KIO.decode_request(12, body, 0)
    assert METADATA_BY_KIO.decode_request(12, tagged, 0) == expected


def test_a_known_tagged_field_stays_between_unknown_ones():
    """Cutting out keeps what kio knows: the cluster id of a fetch."""
    body = encoded("fetch", 12, 1)
    assert body[-1:] == b"\0"
    tagged = body[:-1] + b"\x02\x00\x03\x03id\x07\x01z"
    assert FETCH_BY_KIO.decode_request(12, tagged, 0).cluster_id == "id"


def test_a_known_tagged_field_must_have_the_size_it_claims():
    """Otherwise walk and reader could diverge, and a count be read that was not walked over."""
    body = encoded("fetch", 12, 1)
    with pytest.raises(DecodeError, match="tagged field 0"):
        FETCH_BY_KIO.decode_request(12, body[:-1] + b"\x01\x00\x02\x03id", 0)


def test_a_bomb_of_tagged_fields_is_refused():
    """Neither their number nor their sizes are believed."""
    body = encoded("metadata", 12, 0)
    for tags in (
        b"\xff\xff\xff\xff\x0f",
        b"\x41" + b"\x00\x00" * 65,
        b"\x01\x07\xff\xff\xff\xff\x0f",
    ):
        with pytest.raises(DecodeError):
            METADATA_BY_KIO.decode_request(12, body[:-1] + tags, 0)


@st.composite
def mutated_requests(draw: st.DrawFn) -> tuple[str, int, bytes]:
    """A valid body with a few bytes replaced, inserted or removed."""
    name, version = draw(st.sampled_from(SERVED))
    body = encoded(name, version, draw(st.integers(0, 3)))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.integers(0, 8)))
        body = body[:start] + draw(st.binary(max_size=8)) + body[end:]
    return name, version, body


def check_any_bytes(case: tuple[str, int, bytes]) -> None:
    """A value or `DecodeError`; and what kio reads is what was walked over."""
    from kio.serial import entity_reader

    name, version, body = case
    decode(name, version, body)
    cls = message(name, version, "Request")
    try:
        readable = readable_request(cls, body, 0)
    except DecodeError:
        return
    try:
        _, size = entity_reader(cls)(readable, 0)
    except Exception:  # noqa: BLE001 - `decode` has judged it
        return
    assert walked_to(name, version, readable) == size


@given(mutated_requests())
@example(("fetch", 17, b""))
@settings(max_examples=300)
def test_mutated_requests_give_a_value_or_a_decode_error(case):
    """Nothing but DecodeError leaves the decoder, and walk and kio agree to the byte."""
    check_any_bytes(case)


@pytest.mark.slow
@given(
    mutated_requests()
    | st.tuples(st.sampled_from(SERVED), st.binary()).map(lambda c: (*c[0], c[1]))
)
@settings(max_examples=12_000)
def test_many_mutated_requests_give_a_value_or_a_decode_error(case):
    """The same as above, for longer, and with arbitrary bytes."""
    check_any_bytes(case)
