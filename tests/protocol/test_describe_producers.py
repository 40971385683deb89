"""The hand-packed DescribeProducers response, read by kio."""

from __future__ import annotations

from kio.schema.describe_producers.v0.response import DescribeProducersResponse
from kio.serial import entity_reader

from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.describe_producers import (
    PartitionDescribed,
    TopicDescribed,
    encode_describe_producers_response,
)
from echoless.protocol.errors import ErrorCode

ENTRIES = {
    2**63 - 1: ProducerEntry(2**15 - 1, 0, 5, (BatchMetadata(9, 20, 9, 2**40, None),)),
    7: ProducerEntry(3, -1, 5, ()),
}


def test_kio_reads_what_is_packed():
    """Every field, an entry without batches, an error with its message, several topics."""
    topics = [
        TopicDescribed(
            "t",
            [
                PartitionDescribed(0, producers=ENTRIES.items(), producer_count=len(ENTRIES)),
                PartitionDescribed(5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none"),
            ],
        ),
        TopicDescribed("nothing", []),
    ]
    body = encode_describe_producers_response(topics)
    response, size = entity_reader(DescribeProducersResponse)(body, 0)
    assert size == len(body)
    assert [topic.name for topic in response.topics] == ["t", "nothing"]
    whole, failed = response.topics[0].partitions
    names = (
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_timestamp",
        "coordinator_epoch",
        "current_txn_start_offset",
    )
    assert [tuple(getattr(row, name) for name in names) for row in whole.active_producers] == [
        (2**63 - 1, 2**15 - 1, 9, 2**40, -1, -1),
        (7, 3, -1, -1, -1, -1),
    ]
    assert (failed.partition_index, failed.error_code) == (5, 3)
    assert failed.error_message == "there is none"
