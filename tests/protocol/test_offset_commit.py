"""OffsetCommit read and packed by hand, against kio: the same values, the same bytes refused, the same answers."""

from __future__ import annotations

import datetime
import io
import struct
import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echoless.broker.handlers.offset_commit import API
from echoless.protocol.errors import DecodeError
from echoless.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetPartition,
    OffsetTopic,
    decode_offset_commit_request,
    encode_offset_commit_response,
)
from echoless.protocol.registry import Api
from echoless.protocol.request_fields import ELEMENTS_MAX
from tests.support.raw_client import decode_whole, message, nested

VERSIONS = range(API.version_min, API.version_max + 1)
of_each_version = pytest.mark.parametrize("version", VERSIONS)
BY_KIO = Api(
    key=API.key,
    name=API.name,
    version_min=API.version_min,
    version_max=API.version_max,
    flexible_from=API.flexible_from,
)
MILLISECOND = datetime.timedelta(milliseconds=1)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=200)
partitions = st.builds(OffsetPartition, int32, int64, int32, st.none() | texts)
topics = st.tuples(texts, st.uuids(), st.lists(partitions, max_size=4))
Listed = list[tuple[str, uuid.UUID, list[OffsetPartition]]]
requests = st.builds(
    OffsetCommitRequest,
    texts,
    int32,
    texts,
    st.none() | texts,
    st.integers(-1, 10**15),
    st.lists(topics, max_size=4),  # type: ignore[arg-type]
)
SAMPLE: Any = OffsetCommitRequest(
    "a group",
    7,
    "member",
    "instance",
    60_000,
    [("orders", uuid.UUID(int=5), [OffsetPartition(0, 1, 2, "note")] * 2)],  # type: ignore[arg-type]
)


def encode(version: int, request: OffsetCommitRequest) -> bytes:
    """The request as kio writes it, as far as the version can carry it."""
    from kio.serial import entity_writer

    listed: Listed = request.topics  # type: ignore[assignment]
    of_topic = nested(API.name, version, "OffsetCommitRequestTopic")
    of_partition = nested(API.name, version, "OffsetCommitRequestPartition")
    without = {} if version >= 6 else {"committed_leader_epoch"}

    def partition(one: OffsetPartition) -> Any:
        return of_partition(**{k: v for k, v in one._asdict().items() if k not in without})

    fields: dict[str, Any] = {
        "group_id": request.group_id,
        "generation_id_or_member_epoch": request.generation_id_or_member_epoch,
        "member_id": request.member_id,
        "topics": tuple(
            of_topic(
                **({"topic_id": topic_id} if version >= 10 else {"name": name}),
                partitions=tuple(map(partition, rows)),
            )
            for name, topic_id, rows in listed
        ),
    }
    if version >= 7:
        fields["group_instance_id"] = request.group_instance_id
    if version < 5:
        fields["retention_time"] = request.retention_time_ms * MILLISECOND
    entity, out = message(API.name, version, "Request")(**fields), io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def expected(version: int, request: OffsetCommitRequest) -> OffsetCommitRequest:
    """The request, as far as the version can carry it."""
    listed: Listed = request.topics  # type: ignore[assignment]
    lost = {} if version >= 6 else {"committed_leader_epoch": -1}
    return request._replace(
        group_instance_id=request.group_instance_id if version >= 7 else None,
        retention_time_ms=request.retention_time_ms if version < 5 else -1,
        topics=tuple(
            OffsetTopic(
                topic_id if version >= 10 else name, tuple(one._replace(**lost) for one in rows)
            )
            for name, topic_id, rows in listed
        ),
    )


def read_by_kio(version: int, frame: bytes) -> OffsetCommitRequest | None:
    """The request as kio reads it, after the walk; None for one that is refused."""
    try:
        entity = BY_KIO.decode_request(version, frame, 0)
    except DecodeError:
        return None
    return OffsetCommitRequest(
        entity.group_id,
        entity.generation_id_or_member_epoch,
        entity.member_id,
        entity.group_instance_id if version >= 7 else None,
        entity.retention_time // MILLISECOND if version < 5 else -1,
        tuple(
            OffsetTopic(
                (topic.topic_id or "") if version >= 10 else topic.name,
                tuple(
                    OffsetPartition(
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch if version >= 6 else -1,
                        one.committed_metadata,
                    )
                    for one in topic.partitions
                ),
            )
            for topic in entity.topics
        ),
    )


def read_by_hand(version: int, frame: bytes) -> OffsetCommitRequest | None:
    try:
        return decode_offset_commit_request(version, frame, 0)
    except DecodeError:
        return None


@pytest.mark.parametrize("view", [bytes, memoryview])
@of_each_version
@given(request=requests)
def test_what_kio_writes_is_read_back(version: int, view: Any, request: Any) -> None:
    """Every version gives the fields that went in, from small frames and from large ones."""
    frame = b"header" + encode(version, request) + b"left over"
    assert decode_offset_commit_request(version, view(frame), 6) == expected(version, request)


@of_each_version
def test_a_request_cut_anywhere_is_refused(version: int) -> None:
    """Every proper prefix is a DecodeError and nothing else."""
    whole = encode(version, SAMPLE)
    assert decode_offset_commit_request(version, whole, 0) == expected(version, SAMPLE)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_offset_commit_request(version, whole[:size], 0)


@of_each_version
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3),
    request=st.just(SAMPLE) | requests,
)
def test_changed_bytes_are_read_as_kio_reads_them(version: int, changes: Any, request: Any) -> None:
    """Both read the same request, or both refuse it: lengths, counts, nulls, tags, text, times."""
    whole = bytearray(encode(version, request))
    for at, byte in changes:
        whole[int(at * (len(whole) - 1))] = byte
    frame = bytes(whole)
    assert read_by_hand(version, frame) == read_by_kio(version, frame)


@of_each_version
@given(data=st.binary(max_size=100))
@example(data=b"")
def test_any_bytes_are_read_as_kio_reads_them(version: int, data: bytes) -> None:
    """Garbage gives the same request or a DecodeError, whatever it claims."""
    assert read_by_hand(version, data) == read_by_kio(version, data)


MOST_MS = (2**63 - 1) // 1000


@pytest.mark.parametrize("retention_ms", [MOST_MS, MOST_MS + 1, -MOST_MS, -MOST_MS - 1, -(2**63)])
def test_a_retention_time_is_bounded_as_kio_bounds_it(retention_ms: int) -> None:
    """Else the time at which the offset expires might not fit its record."""
    frame = b"\0\1g" + bytes(4) + b"\0\1m" + struct.pack(">q", retention_ms) + bytes(4)
    by_hand = read_by_hand(2, frame)
    assert by_hand == read_by_kio(2, frame)
    assert (by_hand is None) == (abs(retention_ms) > MOST_MS)


@of_each_version
def test_the_elements_of_a_request_are_bounded(version: int) -> None:
    """Topics and partitions count together."""
    row = OffsetPartition(0, 1, 2, None)
    most: Any = SAMPLE._replace(topics=[("t", uuid.UUID(int=1), [row] * (ELEMENTS_MAX - 1))])
    more: Any = SAMPLE._replace(topics=[("t", uuid.UUID(int=1), [row] * ELEMENTS_MAX)])
    assert read_by_hand(version, encode(version, most)) == expected(version, most)
    with pytest.raises(DecodeError, match="elements"):
        decode_offset_commit_request(version, encode(version, more), 0)


def test_tagged_fields_are_skipped() -> None:
    """Unknown tags after a partition, a topic and the request change nothing."""
    tag = b"\1\5\2hi"
    row = struct.pack(">iqi", 3, 9, 1) + b"\0" + tag
    frame = b"\2g" + bytes(4) + b"\2m\0" + b"\2\2t\2" + row + tag + tag
    read = decode_offset_commit_request(8, frame, 0)
    assert read == read_by_kio(8, frame)
    assert read.topics == (("t", ((3, 9, 1, None),)),)


answers = st.lists(
    st.tuples(texts, st.uuids(), st.lists(st.tuples(int32, st.sampled_from([0, 3, 12, 25, 113])))),
    max_size=4,
)


@of_each_version
@given(listed=answers)
@example(listed=[("t" * 200, uuid.UUID(int=0), [(0, 0)] * 200)])
def test_the_answer_is_what_kio_reads(version: int, listed: Any) -> None:
    """Topics by name or id, their partitions and codes, and no throttle time."""
    has_ids = version >= 10
    body = encode_offset_commit_response(
        version,
        [(topic_id if has_ids else name, rows) for name, topic_id, rows in listed],
    )
    header = b"\0" * (version >= API.flexible_from)
    response, left = decode_whole(message(API.name, version, "Response"), header + body)
    assert left == 0
    assert [
        (
            (topic.topic_id or uuid.UUID(int=0)) if has_ids else topic.name,
            [(one.partition_index, one.error_code) for one in topic.partitions],
        )
        for topic in response.topics
    ] == [(topic_id if has_ids else name, rows) for name, topic_id, rows in listed]
    if version >= 3:
        assert not response.throttle_time


def test_an_empty_name_is_answered_as_the_id_of_zeros() -> None:
    """So the request names a topic whose id it leaves out."""
    of_zeros = encode_offset_commit_response(10, [(uuid.UUID(int=0), [(1, 100)])])
    assert encode_offset_commit_response(10, [("", [(1, 100)])]) == of_zeros
