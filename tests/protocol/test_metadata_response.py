"""The Metadata response packed by hand is the one that kio packs, in every version."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.handlers.metadata import API
from echoless.protocol.errors import ErrorCode
from echoless.protocol.metadata_response import (
    BrokerRow,
    PartitionRow,
    encode_metadata_response,
    encode_partitions,
    encode_topic,
)

ids = st.lists(st.integers(0, 2**31 - 1), max_size=4)
names = st.text(max_size=200)
rows = st.builds(
    PartitionRow,
    st.sampled_from([ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE]),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
    ids,
    ids,
    ids,
)
topics = st.tuples(
    st.sampled_from([ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    names,
    st.uuids(version=4),
    st.lists(rows, max_size=4),
    st.integers(-(2**31), 2**31 - 1),
)
brokers = st.builds(BrokerRow, st.integers(0, 2**31 - 1), names, st.integers(0, 65535))


def fields_of(row: PartitionRow) -> dict[str, object]:
    return {
        "error_code": row.error_code,
        "partition_index": row.partition_index,
        "leader_id": row.leader_id,
        "leader_epoch": row.leader_epoch,
        "replica_nodes": tuple(row.replicas),
        "isr_nodes": tuple(row.isr),
        "offline_replicas": tuple(row.offline_replicas),
    }


@given(
    st.integers(API.version_min, API.version_max),
    st.lists(brokers, max_size=3),
    names,
    st.lists(topics, max_size=3),
    st.integers(-(2**31), 2**31 - 1),
)
def test_it_is_what_kio_packs(
    version: int,
    some_brokers: list[BrokerRow],
    cluster_id: str,
    some_topics: list[tuple[ErrorCode, str, uuid.UUID, list[PartitionRow], int]],
    operations: int,
) -> None:
    """It holds for any content; a topic may be packed in pieces."""
    packed = [
        (
            encode_topic(
                version,
                error_code=code,
                name=name,
                topic_id=topic_id,
                partition_count=len(partitions),
                partitions=[encode_partitions(version, [row]) for row in partitions],
            ),
            of_topic,
        )
        for code, name, topic_id, partitions, of_topic in some_topics
    ]
    by_hand = encode_metadata_response(
        version,
        brokers=some_brokers,
        cluster_id=cluster_id,
        controller_id=7,
        topics=packed,
        cluster_operations=operations,
    )
    assert by_hand == API.encode_response(
        version,
        {
            "throttle_time": 0,
            "error_code": ErrorCode.NONE,
            "brokers": [
                {"node_id": one.broker_id, "host": one.host, "port": one.port}
                for one in some_brokers
            ],
            "cluster_id": cluster_id,
            "controller_id": 7,
            "cluster_authorized_operations": operations,
            "topics": [
                {
                    "error_code": code,
                    "name": name,
                    "topic_id": topic_id,
                    "is_internal": False,
                    "topic_authorized_operations": of_topic,
                    "partitions": [fields_of(row) for row in partitions],
                }
                for code, name, topic_id, partitions, of_topic in some_topics
            ],
        },
    )


def test_what_is_not_there_has_neither_name_nor_id() -> None:
    """A topic that is asked for by an id that is unknown, or by a name."""
    for name, topic_id in ((None, uuid.UUID(int=5)), ("t", None)):
        code = ErrorCode.UNKNOWN_TOPIC_ID
        packed = encode_topic(
            12, error_code=code, name=name, topic_id=topic_id, partition_count=0, partitions=()
        )
        by_hand = encode_metadata_response(
            12, brokers=(), cluster_id="c", controller_id=1, topics=[(packed, 0)],
            cluster_operations=0,
        )  # fmt: skip
        row = {"error_code": code, "name": name, "topic_id": topic_id, "is_internal": False}
        fields = {"throttle_time": 0, "brokers": (), "cluster_id": "c", "controller_id": 1}
        rows = [{**row, "partitions": (), "topic_authorized_operations": 0}]
        assert by_hand == API.encode_response(12, {**fields, "topics": rows})
