"""DescribeProducers, over a real socket: every producer of a partition, in answers of bounded size."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from echoless.broker.handlers import describe_producers
from echoless.broker.handlers.describe_producers import PRODUCERS_AT_ONCE, REPEATED_PRODUCERS_MAX
from echoless.protocol.control_records import MarkerType
from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_check import READ_AT_ONCE_MAX
from tests.broker.handlers.one_producer import produce
from tests.support.in_process import Running
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import (
    RawConnection,
    describe_producers_request,
    producer_rows,
)
from tests.support.raw_produce import PartitionData
from tests.support.transactions_by_hand import TIMESTAMP_MS, HandMadeTransactions

pytestmark = pytest.mark.usefixtures("ten_records")


async def test_producers_are_described(kafka: RawConnection) -> None:
    """Every producer with its epoch and last sequence; one row for each index asked for."""
    await produce(kafka, 2, producer_id=3)
    kafka.send_request(describe_producers_request("t", [0, 0, 5]))
    response = await kafka.receive_response("describe_producers", 0)
    rows = response.topics[0].partitions
    assert [(row.partition_index, row.error_code) for row in rows] == [
        (0, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [tuple(row) for row in producer_rows(rows[0])] == [
        (3, 0, 1, 1, -1, -1),
        (7, 0, 9, 1, -1, -1),
    ]


async def test_many_producers_are_encoded_beside_the_loop(
    kafka: RawConnection, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are encoded as of the row's creation, whatever is appended meanwhile.

    A million would take seconds.
    """
    states = running.broker.partitions["t", 0].log.producers
    newest = BatchMetadata(5, 0, 5, 1, 7)
    ids = range(1000, 1000 + PRODUCERS_AT_ONCE)
    for producer_id in ids:
        states.put(producer_id, ProducerEntry(0, 0, 1, (newest,)))
    threads = []
    encode = describe_producers.encode_describe_producers_response

    def noted(topics: Any) -> bytes:
        threads.append(threading.get_ident())
        states.put(1000, ProducerEntry(3, 0, 1, (newest,)))
        return encode(topics)

    monkeypatch.setattr(describe_producers, "encode_describe_producers_response", noted)
    kafka.send_request(describe_producers_request("t", [0, 5]))
    response = await kafka.receive_response("describe_producers", 0)
    row, missing = response.topics[0].partitions
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {told.producer_id: told.producer_epoch for told in row.active_producers} == {
        7: 0,
        **dict.fromkeys(ids, 0),
    }
    assert threads != [threading.get_ident()]


@pytest.mark.parametrize("producers_at_once", [PRODUCERS_AT_ONCE, 0])
async def test_transactions_are_described(
    kafka: RawConnection,
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    producers_at_once: int,
) -> None:
    """Start of the open one and epoch of the last coordinator, also in a long answer."""
    monkeypatch.setattr(describe_producers, "PRODUCERS_AT_ONCE", producers_at_once)
    partition = running.broker.partitions["t", 0]
    hand = HandMadeTransactions(partition)
    for producer_id in (20, 21):
        hand.write(producer_id, b"v")
    later_ms = TIMESTAMP_MS + 5
    hand.end(20, MarkerType.ABORT, coordinator_epoch=4, timestamp_ms=later_ms)
    assert hand.write(20, b"v", b"w") == 13
    hand.end(21, MarkerType.COMMIT, coordinator_epoch=6, timestamp_ms=later_ms)
    kafka.send_request(describe_producers_request("t", [0]))
    response = await kafka.receive_response("describe_producers", 0)
    rows = {row.producer_id: row for row in producer_rows(response.topics[0].partitions[0])}
    assert tuple(rows[7]) == (7, 0, 9, 1, -1, -1)
    assert tuple(rows[20]) == (20, 0, 2, TIMESTAMP_MS, 4, 13)
    assert tuple(rows[21]) == (21, 0, 0, later_ms, 6, -1)
    assert partition.log.producers.open_transaction_count == 1


async def test_earlier_produces_of_the_connection_are_seen(kafka: RawConnection) -> None:
    """One that is checked in a thread holds up the next one, and the look at the producers behind it, too."""
    many = plain_batch(
        [b"v"] * (2 * READ_AT_ONCE_MAX), producer_id=8, producer_epoch=0, base_sequence=0
    )
    after = plain_batch([b"v"], producer_id=8, producer_epoch=0, base_sequence=2 * READ_AT_ONCE_MAX)
    later = plain_batch([b"v"], producer_id=9, producer_epoch=0, base_sequence=0)
    for batch in (many, after):
        kafka.send_produce(9, -1, [PartitionData("t", 0, batch.encode())])
    kafka.send_request(describe_producers_request("t", [0]))
    kafka.send_produce(9, -1, [PartitionData("t", 0, later.encode())])
    for _ in range(2):
        (answer,) = await kafka.receive_produce(9)
        assert answer.error == 0
    response = await kafka.receive_response("describe_producers", 0)
    (answer,) = await kafka.receive_produce(9)
    assert answer.error == 0
    last = {
        row.producer_id: row.last_sequence
        for row in producer_rows(response.topics[0].partitions[0])
    }
    assert last[8] == 2 * READ_AT_ONCE_MAX
    assert 9 not in last, "what came later is not"


async def test_producers_of_no_topic(kafka: RawConnection) -> None:
    """A name that is invalid for a topic is distinguished from one that does not exist."""
    for name, code in (
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        kafka.send_request(describe_producers_request(name, [0]))
        response = await kafka.receive_response("describe_producers", 0)
        assert response.topics[0].partitions[0].error_code == code


@pytest.mark.slow
async def test_a_partition_is_not_described_any_number_of_times(kafka: RawConnection) -> None:
    """A few bytes of request must not make an answer of any size; the first row is always whole."""
    repeats = REPEATED_PRODUCERS_MAX + 1
    kafka.send_request(describe_producers_request("t", [0] * (1 + repeats)))
    response = await kafka.receive_response("describe_producers", 0)
    first, *others = response.topics[0].partitions
    assert len(first.active_producers) == 1
    assert [row.error_code for row in others] == [
        *[ErrorCode.NONE] * (repeats - 1),
        ErrorCode.INVALID_REQUEST,
    ]
