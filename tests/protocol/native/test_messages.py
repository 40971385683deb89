"""Native messages: their defaults, their types, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.codec import locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.messages import (
    CreateTopic,
    Fetch,
    Hello,
    Metadata,
    Produce,
    ProducerStateRequest,
)
from echoless.protocol.record_batch import Codec, read_header
from echoless.protocol.records import Record, read_records

RECORDS = [{"value": b"v"}]


def fields(**values: Any) -> Fields:
    return Fields("message", locate_fields(msgpack.packb(values)))


def test_what_is_left_out_has_a_default():
    """A message names only what it means; nil counts as left out, and what is unknown is ignored."""
    assert Hello.read(fields()) == Hello(1, "")
    assert Metadata.read(fields(topics=None, novelty=[1, {"a": 2}])) == Metadata(None, False)
    assert CreateTopic.read(fields(topic="t")) == CreateTopic(
        topic="t", partitions=-1, replication_factor=-1, configs={}
    )
    assert ProducerStateRequest.read(fields(topic="t", partition=0)).limit == 1000
    fetch = Fetch.read(fields(topic="t", partition=0, offset=5))
    assert (fetch.max_wait_ms, fetch.min_bytes, fetch.bytes_max, fetch.is_raw) == (
        500,
        1,
        1024 * 1024,
        False,
    )


def test_records_become_the_batch_that_was_described():
    """Producer id, epoch and sequence are taken exactly as they are; so are keys, times, headers."""
    message = Produce.read(
        fields(
            topic="t",
            partition=3,
            producer_id=2**62,
            producer_epoch=-7,
            base_sequence=2**31 - 1,
            compression="gzip",
            records=[
                {"key": "k", "value": b"v", "timestamp": 5, "headers": [["h", b"1"], ["h", None]]},
                {"key": None, "novelty": 1},
            ],
        )
    )
    header = read_header(message.batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
        2**62,
        -7,
        2**31 - 1,
    )
    assert header.codec_id == Codec.GZIP
    assert read_records(message.batch) == [
        Record(0, 5, b"k", b"v", (("h", b"1"), ("h", None))),
        Record(1, -1, None, None, ()),
    ]


def test_a_repeated_message_is_the_same_batch():
    """Nothing in a batch is made up from the time of day: a repeat has the same bytes."""
    said = {"topic": "t", "partition": 0, "records": RECORDS}
    assert Produce.read(fields(**said)).batch == Produce.read(fields(**said)).batch


def test_a_ready_made_batch_is_taken_as_it_is():
    """Not even wrong bytes are touched: the broker's own checks judge them."""
    message = Produce.read(fields(topic="t", partition=0, batch=b"not a batch"))
    assert message.batch == b"not a batch"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"partition": 0, "records": RECORDS}, "topic is missing"),
        ({"topic": b"t", "partition": 0, "records": RECORDS}, "topic takes a text, not bytes"),
        ({"topic": "t", "partition": "0", "records": RECORDS}, "partition takes an integer"),
        ({"topic": "t", "partition": True, "records": RECORDS}, "partition takes an integer"),
        ({"topic": "t", "partition": 2**31, "records": RECORDS}, "2147483647, not 2147483648"),
        ({"topic": "t", "partition": 0}, "either records or batch"),
        ({"topic": "t", "partition": 0, "records": RECORDS, "batch": b""}, "either records or"),
        ({"topic": "t", "partition": 0, "batch": "text"}, "batch takes bytes"),
        ({"topic": "t", "partition": 0, "batch": b"", "producer_id": 1}, "inside the batch"),
        ({"topic": "t", "partition": 0, "records": {}}, "records takes an array, not dict"),
        ({"topic": "t", "partition": 0, "records": [1]}, "record 0 is a map, not int"),
        ({"topic": "t", "partition": 0, "records": [{"key": 1}]}, "record 0: key takes bytes"),
        ({"topic": "t", "partition": 0, "records": [{"timestamp": -2}]}, "timestamp takes"),
        ({"topic": "t", "partition": 0, "records": [{"timestamp": "now"}]}, "timestamp takes"),
        ({"topic": "t", "partition": 0, "records": [{"headers": {"a": b""}}]}, "headers is an"),
        ({"topic": "t", "partition": 0, "records": [{"headers": [["a"]]}]}, "a header is"),
        ({"topic": "t", "partition": 0, "records": [{"headers": [["a", 1]]}]}, "header 'a'"),
        ({"topic": "t", "partition": 0, "records": RECORDS, "compression": "lzma"}, "'lzma'"),
        ({"topic": "t", "partition": 0, "records": RECORDS, "producer_epoch": 2**15}, "32767"),
        ({"topic": "t", "partition": 0, "records": [{"value": b"v" * 2**21}]}, "at most 2097152"),
        ({"topic": "t" * 2**17, "partition": 0, "records": RECORDS}, "at most 65536"),
    ],
)
def test_a_complaint_names_the_field(values, complaint):
    """Wrong types, values out of range and contradictions are INVALID_REQUEST, in plain words."""
    with pytest.raises(KafkaError, match=complaint) as caught:
        Produce.read(fields(**values))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.message.startswith("message: ")


def test_a_batch_without_records_is_no_batch():
    """An empty list of records is refused as the Kafka port refuses an empty batch."""
    with pytest.raises(KafkaError) as caught:
        Produce.read(fields(topic="t", partition=0, records=[]))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (Metadata.read, {"topics": "t"}),
        (Metadata.read, {"topics": [1]}),
        (Metadata.read, {"may_create": 1}),
        (CreateTopic.read, {"topic": "t", "configs": {"a": 1}}),
        (CreateTopic.read, {"topic": "t", "configs": ["a"]}),
        (ProducerStateRequest.read, {"topic": "t", "partition": 0, "limit": 10_001}),
        (ProducerStateRequest.read, {"topic": "t", "partition": 0, "skip": -1}),
        (Fetch.read, {"topic": "t", "partition": 0, "offset": 1.5}),
        (Fetch.read, {"topic": "t", "partition": 0, "offset": 0, "raw": "yes"}),
    ],
)
def test_other_messages_check_their_types_too(read, values):
    """No message takes what it does not expect."""
    with pytest.raises(KafkaError) as caught:
        read(fields(**values))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
