"""The hand-packed DescribeProducers response, read by kio."""

from __future__ import annotations

from kio.schema.describe_producers.v0.response import DescribeProducersResponse
from kio.serial import entity_reader

from echoless.protocol.control_records import MarkerType
from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.describe_producers import (
    PartitionDescribed,
    TopicDescribed,
    encode_describe_producers_response,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.marker_decision import LastMarker

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


class Transactions:
    """Producer 1 is in its second transaction, 2 has ended its last one, 3 began its first, 4 has none."""

    def last_marker(self, producer_id):
        offset = {1: 20, 2: 30}.get(producer_id)
        return offset and LastMarker(MarkerType.ABORT, 10 + producer_id, 0, offset, 1000 + offset)

    def open_transaction(self, producer_id):
        return {1: 24, 3: 40}.get(producer_id)


def test_producers_in_transactions():
    """Coordinator epoch, transaction start, and the time of what is newer, the last batch or the last marker."""
    entries = {
        1: ProducerEntry(0, 0, 5, (BatchMetadata(9, 25, 0, 7, None),)),
        2: ProducerEntry(0, 0, 5, (BatchMetadata(9, 25, 0, 7, None),)),
        3: ProducerEntry(0, 0, 5, (BatchMetadata(9, 40, 0, 7, None),)),
        4: ProducerEntry(0, 0, 5, (BatchMetadata(9, 41, 0, 7, None),)),
    }
    row = PartitionDescribed(
        0, producers=entries.items(), producer_count=len(entries), transactions=Transactions()
    )
    body = encode_describe_producers_response([TopicDescribed("t", [row])])
    response, _ = entity_reader(DescribeProducersResponse)(body, 0)
    names = ("producer_id", "last_timestamp", "coordinator_epoch", "current_txn_start_offset")
    found = response.topics[0].partitions[0].active_producers
    assert [tuple(getattr(one, name) for name in names) for one in found] == [
        (1, 7, 11, 24),
        (2, 1030, 12, -1),
        (3, 7, -1, 40),
        (4, 7, -1, -1),
    ]
