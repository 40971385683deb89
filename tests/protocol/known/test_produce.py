"""Produce requests that begin like known ones mean what the general reader says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.known.memory import SeenBytes
from echoless.protocol.known.produce import read_produce_request
from echoless.protocol.produce_request import (
    PartitionRecords,
    ProduceRequest,
    decode_produce_request,
)
from tests.protocol.test_produce_request import VERSIONS, encode, partitions, requests

ONE_ROW = {"transactional_id": None, "acks": 1, "timeout_ms": 5, "topics": [("t", [(0, b"r")])]}
IN_TRANSACTION = {**ONE_ROW, "transactional_id": "orders-1"}


def read(seen: SeenBytes, version: int, frame: bytes) -> None:
    """Fails unless the quick reader finds what the general one finds: the same values, or the same error."""
    found = result(decode_produce_request, version, frame, 0)
    known = result(read_produce_request, seen, version, frame, 0)
    assert known == found
    if isinstance(known, ProduceRequest):
        rows = [row for topic in known.topics for row in topic.partitions]
        assert all(type(row) is PartitionRecords for row in rows)


def result(reader: Callable[..., ProduceRequest], *arguments: Any) -> ProduceRequest | str:
    """The request, or the error."""
    try:
        return reader(*arguments)
    except DecodeError as error:
        return str(error)


@given(
    version=st.sampled_from(VERSIONS),
    request=requests,
    rows=st.lists(partitions, min_size=1, max_size=4),
    cut=st.integers(0, 60),
)
def test_a_repeated_beginning_is_read_as_if_it_were_new(version, request, rows, cut):
    """Beginnings that were read before never change what is read now, nor what is refused."""
    seen = SeenBytes()
    for partitions_of_one in rows:
        for name, _ in request["topics"][:1]:
            request["topics"] = [(name, partitions_of_one)]
            data = encode(version, request)
            for whole in (data, data, data[: len(data) - cut], data + b"\0", memoryview(data)):
                read(seen, version, whole)


@given(
    one_row=st.sampled_from((ONE_ROW, IN_TRANSACTION)),
    size=st.sampled_from((0, 100, 126, 127, 128, 200, 4095, 4096, 16_382)),
    tail=st.one_of(st.none(), st.binary(max_size=12)),
    place=st.integers(0, 12),
)
def test_a_known_beginning_and_one_row_are_read_as_by_the_loop(one_row, size, tail, place):
    """Whatever stands in the place of index, size, records and tags."""
    head = encode(9, one_row)[:-9]
    data = encode(9, {**one_row, "topics": [("t", [(0, (b"\0" + b"x" * size)[:size])])]})
    null = head + bytes(4) + b"\x80\0"  # its size is 0, in two bytes
    others = [] if tail is None else [data[: len(head) + place] + tail, data[:-3] + tail]
    for damaged in (data, data + b"\0", data[:-1], null + bytes(2), null + bytes(3), *others):
        seen = SeenBytes()
        read(seen, 9, encode(9, one_row))
        assert len(seen.produces) == 1
        read(seen, 9, damaged)


@given(data=st.data())
def test_hostile_bytes_are_read_alike(data):
    """Any change of a request like one that is known, any cut and any bytes more."""
    seen, version = SeenBytes(), data.draw(st.sampled_from(range(9, 13)))
    frame = encode(version, data.draw(requests))
    usual = encode(version, data.draw(st.sampled_from((ONE_ROW, IN_TRANSACTION))))
    for whole in (usual, frame):
        read(seen, version, whole)
        damaged = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, min(len(whole), 60) - 1))] = data.draw(
                st.integers(0, 255)
            )
        place = data.draw(st.integers(0, len(whole)))
        for changed in (
            bytes(damaged),
            whole[:place],
            whole[:place] + data.draw(st.binary(max_size=12)) + whole[place:],
            data.draw(st.binary(max_size=60)),
        ):
            read(seen, version, changed)
            read(seen, version, changed)


def test_a_beginning_without_the_rest_is_refused():
    """A known beginning that announces partitions is no proof that they are there."""
    seen = SeenBytes()
    data = encode(9, ONE_ROW)
    read(seen, 9, data)
    for size in range(len(data)):
        read(seen, 9, data[:size])


def test_what_a_beginning_cannot_mean_alone_is_not_kept():
    """A long transactional id, two topics, a long name, ids, and classic versions."""
    seen = SeenBytes()
    others = (
        {**ONE_ROW, "transactional_id": "t" * 127},
        {**ONE_ROW, "topics": [("t", [(0, b"r")]), ("u", [(0, b"r")])]},
        {**ONE_ROW, "topics": [("t" * 200, [(0, b"r")])]},
        {**ONE_ROW, "topics": []},
    )
    for request in others:
        read(seen, 9, encode(9, request))
    read(seen, 7, encode(7, ONE_ROW))
    read(seen, 13, encode(13, ONE_ROW))
    assert not seen.produces


def test_producers_in_a_transaction_are_known_by_their_id():
    """Requests of two ids begin alike for the rest, and none is taken for the other's, nor for one without an id."""
    seen = SeenBytes()
    ids = ("orders-1", "orders-2", "", "t" * 126, None)
    for _ in range(2):
        for transactional_id in ids:
            read(seen, 9, encode(9, {**ONE_ROW, "transactional_id": transactional_id}))
    assert [known[0] for known in seen.produces.values()] == list(ids)
