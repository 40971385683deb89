"""The native port, over a real socket: each message, its errors, and hostile clients."""

from __future__ import annotations

import asyncio
import datetime
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import msgpack
import pytest

from echoless.broker.config.loading import LogFlush
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.replication import ReplicaWanted
from echoless.protocol.record_batch import TRANSACTIONAL_BIT
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData


@pytest.fixture
async def topic(native: NativeConnection) -> str:
    """A topic of one partition."""
    answer = await native.call("create_topic", topic="orders")
    assert code(answer) == ErrorCode.NONE
    return "orders"


def code(answer: dict[str, Any]) -> int:
    number: int = answer["error"]["code"]
    assert answer["error"]["name"] == ErrorCode(number).name
    assert answer["error"]["retriable"] == ErrorCode(number).retriable
    return number


def produce(sequence: int, **fields: Any) -> dict[str, Any]:
    """A message of producer 7 with one record."""
    return {
        "topic": "orders",
        "partition": 0,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "records": [{"value": str(sequence)}],
        **fields,
    }


async def test_hello_agrees_on_a_version(native: NativeConnection, running: Running) -> None:
    """A version that is spoken is confirmed, another is refused with those that are."""
    answer = await native.call("hello", version=1, client_id="test", correlation_id=9)
    assert (answer["type"], answer["correlation_id"], code(answer)) == ("hello", 9, 0)
    assert (answer["version"], answer["broker_id"]) == (1, running.broker.config.broker_id)
    refused = await native.call("hello", version=2)
    assert code(refused) == ErrorCode.UNSUPPORTED_VERSION
    assert "only 1 to 1" in refused["error"]["message"]


async def test_decisions_name_the_client_of_a_hello_and_the_message(
    native: NativeConnection, running: Running, topic: str
) -> None:
    """Client id, connection and correlation id are shown, as on the Kafka port."""
    await native.call("hello", client_id="tester")
    await native.call("produce", **produce(0), correlation_id=9)
    (outcome,) = running.broker.decisions.latest(1)
    assert (outcome.client_id, outcome.topic) == ("tester", topic)
    assert (outcome.correlation_id, outcome.connection_id > 0) == (9, True)


async def test_producer_ids_come_from_the_broker_s_blocks(
    native: NativeConnection, kafka: RawConnection
) -> None:
    """Both ports hand out ids from the same blocks: none twice."""
    ids = [(await native.call("init_producer_id"))["producer_id"] for _ in range(3)]
    response = await kafka.call(
        "init_producer_id",
        1,
        transactional_id=None,
        transaction_timeout=datetime.timedelta(minutes=1),
    )
    assert [*ids, response.producer_id] == [0, 1, 2, 3]


async def test_produce_says_what_was_decided(native: NativeConnection, topic: str) -> None:
    """New, repeated, out of order and unknown: code, offset, and the reason in words."""
    first = await native.call("produce", **produce(0))
    assert (code(first), first["base_offset"], first["duplicate"]) == (0, 0, False)
    again = await native.call("produce", **produce(0))
    assert (code(again), again["base_offset"], again["duplicate"]) == (0, 0, True)
    gap = await native.call("produce", **produce(5))
    assert code(gap) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert gap["error"]["message"] == "sequence 5 does not follow the last one stored, 0"
    assert (gap["base_offset"], gap["log_start_offset"]) == (-1, 0)
    unknown = await native.call("produce", **produce(5, producer_id=8))
    assert code(unknown) == ErrorCode.UNKNOWN_PRODUCER_ID
    missing = await native.call("produce", **produce(0, topic="other"))
    assert code(missing) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_answer_does_not_depend_on_the_port(
    native: NativeConnection, kafka: RawConnection, topic: str
) -> None:
    """Each batch gets the same code and offsets on both ports, whichever saw it first."""
    other = "other"
    await native.call("create_topic", topic=other)

    def batch(sequence: int, **changes: Any) -> bytes:
        made = plain_batch([b"v"], producer_id=1, producer_epoch=2, base_sequence=sequence)
        for name, value in changes.items():
            setattr(made, name, value)
        return made.encode()

    for data in (
        batch(0),
        batch(1),
        batch(0),
        batch(3),
        batch(2, crc=1),
        batch(2, magic=1),
        batch(2, base_offset=4),
        batch(2, record_count=2),
        batch(2, attributes=TRANSACTIONAL_BIT),
        batch(2, producer_epoch=1),
        batch(7, producer_epoch=3),
        batch(0, producer_epoch=3),
        batch(2)[:50],
        batch(2) + b"more",
        b"",
    ):
        (by_kafka,) = await kafka.produce(12, -1, [PartitionData(other, 0, data)])
        by_native = await native.call("produce", topic=topic, partition=0, batch=data)
        assert code(by_native) == by_kafka.error
        names = ("base_offset", "log_append_time", "log_start_offset")
        assert [by_native[name] for name in names] == [getattr(by_kafka, name) for name in names]


async def test_acks_are_kept_as_on_the_kafka_port(tmp_path: Path) -> None:
    """acks=1 and acks=-1 answer, acks=0 does not, and other numbers are refused."""
    async with in_process(tmp_path, log_flush=LogFlush.COMMIT) as running:
        native = await NativeConnection.open(running.native_address)
        await native.call("create_topic", topic="orders")
        for sequence, acks in enumerate((1, -1)):
            answer = await native.call("produce", **produce(sequence, acks=acks))
            assert (code(answer), answer["base_offset"]) == (0, sequence)
        native.send(type="produce", **produce(2, acks=0))
        answer = await native.call("produce", **produce(3, acks=2))
        assert code(answer) == ErrorCode.INVALID_REQUIRED_ACKS
        native.send(type="produce", **produce(9, acks=0))
        with pytest.raises(EOFError):
            await native.receive()
        await native.close()


async def test_pipelined_messages_are_answered_in_their_order(
    native: NativeConnection, topic: str
) -> None:
    """A fetch that waits holds back the answers after it, not the work."""
    native.send(
        type="fetch", correlation_id=1, topic=topic, partition=0, offset=0, max_wait_ms=60_000
    )
    native.send(type="produce", correlation_id=2, **produce(0))
    fetched, produced = await native.receive(), await native.receive()
    assert (fetched["correlation_id"], produced["correlation_id"]) == (1, 2)
    assert [record["value"] for record in fetched["records"]] == [b"0"]


async def test_fetch_gives_records_or_batches(native: NativeConnection, topic: str) -> None:
    """Records come decoded from the offset asked for; raw batches come as they are stored."""
    records = [
        {"key": "k", "value": b"v", "timestamp": 5, "headers": [["h", b"x"]]},
        {"value": None},
    ]
    await native.call("produce", **produce(0, records=records, compression="zstd"))
    answer = await native.call("fetch", topic=topic, partition=0, offset=1)
    assert (code(answer), answer["high_watermark"], answer["next_offset"]) == (0, 2, 2)
    assert answer["records"] == [
        {"offset": 1, "timestamp": -1, "key": None, "value": None, "headers": []}
    ]
    whole = await native.call("fetch", topic=topic, partition=0, offset=0)
    assert whole["records"][0] == {
        "offset": 0,
        "timestamp": 5,
        "key": b"k",
        "value": b"v",
        "headers": [["h", b"x"]],
    }
    raw = await native.call("fetch", topic=topic, partition=0, offset=1, raw=True)
    (length,) = struct.unpack_from(">i", raw["batches"], 8)
    assert (len(raw["batches"]), raw["next_offset"]) == (length + 12, 2)


async def test_fetch_tells_errors_and_empty_ends(native: NativeConnection, topic: str) -> None:
    """The end of the log is no error; beyond it is one, and so is a partition that is not there."""
    end = await native.call("fetch", topic=topic, partition=0, offset=0, max_wait_ms=0)
    assert (code(end), end["records"], end["next_offset"]) == (0, [], 0)
    beyond = await native.call("fetch", topic=topic, partition=0, offset=7)
    assert code(beyond) == ErrorCode.OFFSET_OUT_OF_RANGE
    missing = await native.call("fetch", topic=topic, partition=1, offset=0)
    assert code(missing) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_that_cannot_be_shown_have_to_be_asked_for_raw(
    native: NativeConnection, topic: str
) -> None:
    """The broker checks the framing of records; what cannot be decoded is said so, and still fetched raw."""
    stored = plain_batch([b"v"])
    stored.payload = b"\x26" + b"\xff" * 19  # a whole record of 19 bytes, and nonsense inside
    await native.call("produce", topic=topic, partition=0, batch=stored.encode())
    shown = await native.call("fetch", topic=topic, partition=0, offset=0)
    assert code(shown) == ErrorCode.CORRUPT_MESSAGE
    assert "fetch it with raw" in shown["error"]["message"]
    raw = await native.call("fetch", topic=topic, partition=0, offset=0, raw=True)
    assert raw["batches"].endswith(stored.payload)


async def test_producer_state_shows_the_whole_window(native: NativeConnection, topic: str) -> None:
    """Each remembered batch of each producer, the oldest append first."""
    for sequence in range(7):
        await native.call("produce", **produce(sequence))
    await native.call("produce", **produce(0, producer_id=3))
    answer = await native.call("producer_state", topic=topic, partition=0)
    assert (code(answer), answer["producer_count"], answer["window"]) == (0, 2, 5)
    assert [row["producer_id"] for row in answer["producers"]] == [7, 3]
    row = answer["producers"][0]
    assert [batch["base_sequence"] for batch in row["batches"]] == [2, 3, 4, 5, 6]
    assert row["batches"][0] == {
        "base_sequence": 2,
        "last_sequence": 2,
        "base_offset": 2,
        "last_offset": 2,
        "timestamp": -1,
        "crc": row["batches"][0]["crc"],
    }


async def test_producer_state_can_be_narrowed(native: NativeConnection, topic: str) -> None:
    """One producer, or a part of the list."""
    for producer_id in range(5):
        await native.call("produce", **produce(0, producer_id=producer_id))

    async def ids(**fields: int) -> list[int]:
        answer = await native.call("producer_state", topic=topic, partition=0, **fields)
        return [row["producer_id"] for row in answer["producers"]]

    assert await ids(producer_id=3) == [3]
    assert await ids(producer_id=99) == []
    assert await ids(skip=1, limit=2) == [1, 2]
    missing = await native.call("producer_state", topic="none", partition=0)
    assert code(missing) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metadata_tells_topics_and_leaders(native: NativeConnection, topic: str) -> None:
    """All topics, some, or one that asking creates."""
    everything = await native.call("metadata")
    assert [row["name"] for row in everything["topics"]] == [topic]
    assert everything["topics"][0]["partitions"][0]["leader_id"] == 1
    missing = await native.call("metadata", topics=["new"])
    assert missing["topics"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    created = await native.call("metadata", topics=["new"], may_create=True)
    assert created["topics"][0]["error_code"] == 0


async def test_create_topic_takes_numbers_and_configurations(native: NativeConnection) -> None:
    """A topic is answered when it can be written to; a second one of that name is refused."""
    answer = await native.call(
        "create_topic", topic="t", partitions=3, configs={"segment.bytes": "1048576"}
    )
    assert (code(answer), answer["partitions"], answer["replication_factor"]) == (0, 3, 1)
    assert code(await native.call("produce", **produce(0, topic="t", partition=2))) == 0
    again = await native.call("create_topic", topic="t")
    assert code(again) == ErrorCode.TOPIC_ALREADY_EXISTS
    wrong = await native.call("create_topic", topic="u", configs={"segment.bites": "1"})
    assert code(wrong) == ErrorCode.INVALID_CONFIG
    assert "segment.bites" in wrong["error"]["message"]


async def test_unknown_types_and_fields(native: NativeConnection) -> None:
    """An unknown type is an error that lists the known ones; unknown fields are ignored."""
    answer = await native.call("renew_pid", correlation_id=4, producer_id=7)
    assert (answer["type"], answer["correlation_id"]) == ("error", 4)
    assert code(answer) == ErrorCode.UNSUPPORTED_VERSION
    assert "init_producer_id" in answer["error"]["message"]
    answer = await native.call("hello", novelty={"deep": [1, 2, {"er": None}]})
    assert code(answer) == ErrorCode.NONE


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"GET / HTTP/1.1",
        msgpack.packb([1, 2]),
        msgpack.packb({"correlation_id": 1}),
        msgpack.packb({"type": 5}),
        msgpack.packb({"type": "hello", "correlation_id": "x"}),
        msgpack.packb({"type": "hello", "correlation_id": 1.5}),
        b"\x81\xa4type" + b"\x91" * 3000,
        msgpack.packb({str(number): 0 for number in range(100)}),
    ],
)
async def test_what_is_no_message_is_answered_and_survived(
    native: NativeConnection, frame: bytes
) -> None:
    """The frames are whole, so the connection stays open: the client gets the error."""
    native.send_frame(frame)
    answer = await native.receive()
    assert (answer["type"], code(answer)) == ("error", ErrorCode.INVALID_REQUEST)
    assert code(await native.call("hello")) == ErrorCode.NONE


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1])
async def test_a_length_out_of_bounds_ends_the_connection(
    native: NativeConnection, length: int
) -> None:
    """After a wrong length there is no next frame to find."""
    native.send_bytes(struct.pack(">i", length))
    with pytest.raises(EOFError):
        await native.receive()


async def test_a_message_may_arrive_byte_by_byte(native: NativeConnection) -> None:
    """The network's fragmentation does not matter."""
    frame = msgpack.packb({"type": "hello"})
    for byte in struct.pack(">i", len(frame)) + frame:
        native.send_bytes(bytes([byte]))
        await asyncio.sleep(0)
    assert code(await native.receive()) == ErrorCode.NONE


async def test_values_that_nobody_asks_for_are_never_built(native: NativeConnection) -> None:
    """A megabyte of empty arrays would be 56 megabytes of objects; unknown fields stay bytes."""
    hostile = b"\x82\xa4type\xa5hello\xa1x" + b"\xdd\x00\x10\x00\x00" + b"\x90" * 2**20
    before = len(gc_tracked())
    native.send_frame(hostile)
    assert code(await native.receive()) == ErrorCode.NONE
    assert len(gc_tracked()) - before < 10_000


def gc_tracked() -> list[object]:
    import gc

    return gc.get_objects()


@pytest.mark.slow
async def test_msgpack_is_loaded_by_the_first_message_only(tmp_path: Path) -> None:
    """An unused port costs nothing."""
    script = (
        "import sys, broker.serve, broker.handlers.dispatch, broker.native.dispatch;"
        "sys.exit('echoless.broker.native.exchange' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await process.wait() == 0


async def test_other_brokers_are_answered_on_the_same_port(
    native: NativeConnection, running: Running, topic: str
) -> None:
    """They identify topics by id; a broker without a replica gets nothing of the partition."""
    topic_id = running.broker.registry.topics[topic].topic_id.bytes
    named = {"topic": topic, "topic_id": topic_id}
    assert code(await native.call("await_topic", **named)) == ErrorCode.NONE
    late = await native.call("await_topic", topic=topic, topic_id=bytes(16), timeout_ms=1)
    assert code(late) == ErrorCode.REQUEST_TIMED_OUT
    wanted = {**named, "partition": 0, "leader_epoch": 0, "offset": 0, "last_epoch": -1}
    fetched = await native.call("replica_fetch", broker_id=9, broker_epoch=1, partitions=[wanted])
    assert code(fetched) == ErrorCode.NONE
    assert fetched["partitions"][0]["error"] == ErrorCode.REPLICA_NOT_AVAILABLE
    asked = {**named, "partition": 0, "leader_epoch": 7}
    refused = await native.call("replica_snapshot", broker_id=9, **asked)
    assert code(refused) == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_replica_fetch_that_names_the_leader_is_refused(
    kafka: RawConnection, running: Running
) -> None:
    """A leader cannot follow itself; the connection stays open."""
    await create_topic(kafka, "led", 1)
    partition = running.broker.services.partitions.find("led", 0)
    broker_id = running.broker.config.broker_id
    native = await NativeConnection.open(running.native_address)
    wanted = {
        "topic": "led",
        "topic_id": partition.topic_id.bytes,
        "partition": 0,
        "leader_epoch": partition.leader_epoch,
        "offset": 0,
        "last_epoch": -1,
    }
    registered = running.broker.membership.registered_epoch(broker_id)
    for broker_epoch in (registered, 0):
        answer = await native.call(
            "replica_fetch",
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            max_wait_ms=0,
            partitions=[wanted],
        )
        assert answer["partitions"][0]["error"] == ErrorCode.REPLICA_NOT_AVAILABLE
    await native.close()


async def test_a_fetch_of_thousands_of_partitions_is_read_beside_the_loop(
    native: NativeConnection, running: Running, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row gets its answer, one that cannot be read refuses all, and what follows keeps its order."""
    threads: list[int] = []
    read = ReplicaWanted.read

    def noted(index: int, entry: object) -> ReplicaWanted:
        threads.append(threading.get_ident())
        return read(index, entry)

    monkeypatch.setattr(ReplicaWanted, "read", noted)
    row = {"topic": topic, "topic_id": bytes(16), "partition": 0, "leader_epoch": 0}
    rows = [{**row, "offset": 0, "last_epoch": -1}] * 2000
    for partitions in (rows, [*rows, {}]):
        native.send(
            type="replica_fetch", broker_id=9, broker_epoch=1, max_wait_ms=0, partitions=partitions
        )
    native.send(type="metadata", topics=[topic])
    answered, refused, described = [await native.receive() for _ in range(3)]
    errors = [one["error"] for one in answered["partitions"]]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_ID] * 2000
    assert code(refused) == ErrorCode.INVALID_REQUEST
    assert described["type"] == "metadata"
    assert threading.get_ident() not in threads
