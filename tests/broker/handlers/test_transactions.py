"""The APIs of transactions in all their versions, on one broker: rows, codes, and what they do to an id."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
)
from echoless.protocol.control_records import EndMarker, MarkerType, read_marker
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import (
    AddOrVerify,
    TransactionAnswered,
    TransactionAsk,
    read_add_or_verify_answer,
)
from echoless.protocol.record_batch import walk
from echoless.protocol.registry import Api
from echoless.protocol.state_records.partitioner import partition_of
from echoless.protocol.state_records.transaction_records import TransactionPartition
from tests.broker.handlers.one_transaction import (
    ID,
    add,
    begin,
    describe,
    end,
    find,
    init,
    state,
    until_state,
)
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.raw_client import ConnectionEndedError, RawConnection, create_topic

NONE, FENCED, OLD_EPOCH = (
    ErrorCode.NONE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def versions(api: Api, first: int | None = None) -> range:
    return range(api.version_min if first is None else first, api.version_max + 1)


@pytest.fixture
async def topic(kafka: RawConnection) -> None:
    """A topic `t` of two partitions."""
    await create_topic(kafka, "t", 2)


def markers_in(running: Running, partition: int) -> list[tuple[int, int, EndMarker]]:
    """Producer id, epoch and marker of each control batch in `t`."""
    log = running.broker.partitions["t", partition].log
    data = memoryview(log.read(0, 1 << 20, log.log_end_offset))
    found = []
    for position, header in walk(data):
        if header.is_control:
            marker = read_marker(data[position : position + header.size])
            assert marker is not None
            found.append((header.producer_id, header.producer_epoch, marker))
    return found


@pytest.mark.parametrize("version", versions(find_coordinator.API, 1))
async def test_an_id_is_coordinated_by_this_broker(
    kafka: RawConnection, running: Running, version: int
) -> None:
    """Its topic is created with the first question."""
    row = await find(kafka, version)
    assert (row.error_code, row.node_id) == (NONE, running.broker.config.broker_id)
    assert f"{row.host}:{row.port}" == running.kafka_address
    assert running.broker.services.transactions.topic.partition_count == 8


@pytest.mark.parametrize("version", versions(init_producer_id.API))
async def test_each_instance_gets_the_next_epoch(kafka: RawConnection, version: int) -> None:
    """All have one producer id; a session that names its identity goes on with the next one, too."""
    producer_id, epoch = await begin(kafka)
    second = await init(kafka, version)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (NONE, producer_id, 1)
    assert epoch == 0
    if version >= 3:
        third = await init(kafka, version, identity=(producer_id, 1))
        assert (third.error_code, third.producer_epoch) == (NONE, 2)
        fenced = await init(kafka, version, identity=(producer_id, 0))
        assert fenced.error_code == (FENCED if version >= 4 else OLD_EPOCH)
        assert (fenced.producer_id, fenced.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"identity": (7, -1)}, ErrorCode.INVALID_REQUEST),
        (
            {"within": datetime.timedelta(0)},
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
        (
            {"within": datetime.timedelta(milliseconds=900_001)},
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
    ],
)
async def test_an_init_that_makes_no_sense_is_refused(
    kafka: RawConnection, given: dict[str, Any], code: ErrorCode
) -> None:
    """The longest timeout is the broker's setting."""
    await begin(kafka)
    assert (await init(kafka, **given)).error_code == code


async def test_a_timeout_is_judged_before_the_coordinator(kafka: RawConnection) -> None:
    """Any broker says so, as Kafka's does; this one coordinates nothing yet."""
    for timeout_ms, code in (
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_000, ErrorCode.NOT_COORDINATOR),
    ):
        within = datetime.timedelta(milliseconds=timeout_ms)
        answer = await kafka.call(
            *("init_producer_id", 1), transactional_id=ID, transaction_timeout=within
        )
        assert (answer.error_code, answer.producer_id) == (code, -1)


@pytest.mark.parametrize("version", versions(add_partitions_to_txn.API))
async def test_partitions_are_added(kafka: RawConnection, topic: None, version: int) -> None:
    """And shown; an old epoch is told so, as its version knows how."""
    identity = await begin(kafka)
    added = await add(kafka, identity, {"t": (0, 1)}, version)
    assert added == {("t", 0): NONE, ("t", 1): NONE}
    (row,) = await describe(kafka, ID)
    assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", *identity)
    assert [(one.topic, one.partitions) for one in row.topics] == [("t", (0, 1))]
    assert row.transaction_timeout == datetime.timedelta(minutes=1)
    old = (identity[0], identity[1] + 1)
    code = FENCED if version >= 2 else OLD_EPOCH
    assert await add(kafka, old, {"t": (0,)}, version) == {("t", 0): code}


@pytest.mark.parametrize("version", versions(add_partitions_to_txn.API))
async def test_all_partitions_are_added_or_none(
    kafka: RawConnection, topic: None, version: int
) -> None:
    """The others are told that nothing was tried (55)."""
    identity = await begin(kafka)
    wanted = {"t": (0, 7), "missing": (0,)}
    assert await add(kafka, identity, wanted, version) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await state(kafka) == "Empty"


async def test_an_internal_topic_is_nobody_s_to_add(kafka: RawConnection, topic: None) -> None:
    """Its partitions come with the offsets of a group."""
    identity = await begin(kafka)
    codes = await add(kafka, identity, {"__transaction_state": (0,), "t": (0,)})
    assert codes["__transaction_state", 0] is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes["t", 0] is ErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.mark.parametrize("version", versions(add_partitions_to_txn.API, 4))
async def test_a_broker_of_kafka_may_look(kafka: RawConnection, topic: None, version: int) -> None:
    """A partition that is not in the transaction gets 120, in version 4 as well; nothing is added."""
    identity = await begin(kafka)
    await add(kafka, identity, {"t": (0,)})
    found = await add(kafka, identity, {"t": (0, 1)}, version, verify_only=True)
    assert found == {("t", 0): NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}
    found = await add(kafka, identity, {"t": (0,), "u": (0,)}, version, verify_only=True)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED, ("u", 0): unknown}
    (row,) = await describe(kafka, ID)
    assert [one.partitions for one in row.topics] == [(0,)]


@pytest.mark.parametrize("version", versions(add_offsets_to_txn.API))
async def test_the_offsets_of_a_group_are_added(
    kafka: RawConnection, running: Running, version: int
) -> None:
    """With the partition that keeps the group, which is created if need be."""
    identity = await begin(kafka)
    fields = {"transactional_id": ID, "producer_id": identity[0], "group_id": "g"}
    answer = await kafka.call("add_offsets_to_txn", version, **fields, producer_epoch=identity[1])
    assert answer.error_code == NONE
    count = running.broker.registry.topics[CONSUMER_OFFSETS].partition_count
    (row,) = await describe(kafka, ID)
    assert [(one.topic, one.partitions) for one in row.topics] == [
        (CONSUMER_OFFSETS, (partition_of("g", count),))
    ]
    answer = await kafka.call("add_offsets_to_txn", version, **fields, producer_epoch=9)
    assert answer.error_code == (FENCED if version >= 2 else OLD_EPOCH)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", versions(end_txn.API))
async def test_a_transaction_ends_with_markers(
    kafka: RawConnection, running: Running, topic: None, *, version: int, is_commit: bool
) -> None:
    """From version 5 on with the epoch after, which the client goes on with."""
    producer_id, epoch = await begin(kafka)
    await add(kafka, (producer_id, epoch), {"t": (0, 1)})
    answer = await end(kafka, (producer_id, epoch), is_commit=is_commit, version=version)
    assert answer.error_code == NONE
    raised = epoch + (version >= 5)
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (producer_id, raised)
    await until_state(kafka, "CompleteCommit" if is_commit else "CompleteAbort")
    kind = MarkerType.COMMIT if is_commit else MarkerType.ABORT
    for partition in (0, 1):
        ((found_id, found_epoch, marker),) = markers_in(running, partition)
        assert (found_id, found_epoch, marker.type) == (producer_id, raised, kind)
    (row,) = await describe(kafka, ID)
    assert row.topics == ()
    fenced = await end(kafka, (producer_id, epoch + 5), is_commit=is_commit, version=version)
    assert fenced.error_code == (FENCED if version >= 2 else OLD_EPOCH)


async def test_a_new_instance_aborts_what_the_old_one_has_begun(
    kafka: RawConnection, running: Running, topic: None
) -> None:
    """And fences it."""
    producer_id, epoch = await begin(kafka)
    await add(kafka, (producer_id, epoch), {"t": (0,)})
    second = await init(kafka)
    assert (second.error_code, second.producer_id) == (NONE, producer_id)
    assert second.producer_epoch > epoch + 1
    ((_, _, marker),) = markers_in(running, 0)
    assert marker.type is MarkerType.ABORT
    answer = await end(kafka, (producer_id, epoch))
    assert answer.error_code == FENCED


async def test_a_transaction_that_takes_too_long_is_aborted(
    kafka: RawConnection, running: Running, topic: None
) -> None:
    """By the broker; the commit that comes then is refused so that the client may go on."""
    await begin(kafka)
    answer = await init(kafka, within=datetime.timedelta(milliseconds=1))
    identity = answer.producer_id, answer.producer_epoch
    await add(kafka, identity, {"t": (0,)})
    await until_state(kafka, "CompleteAbort")
    ((_, epoch, marker),) = markers_in(running, 0)
    assert (epoch, marker.type) == (identity[1] + 1, MarkerType.ABORT)
    late = await end(kafka, identity, version=5)
    assert late.error_code == ErrorCode.TRANSACTION_ABORTABLE


async def test_a_delayed_request_on_an_old_connection_closes_it(
    kafka: RawConnection, running: Running, topic: None
) -> None:
    """It may be a copy of one that was answered; the live client is on a newer connection."""
    identity = await begin(kafka)
    newer = await RawConnection.open(running.kafka_address)
    await add(newer, identity, {"t": (0,)})
    with pytest.raises(ConnectionEndedError):
        await end(kafka, identity)
    assert await state(newer) == "Ongoing"
    await newer.close()


async def test_ids_are_described_one_by_one(kafka: RawConnection, topic: None) -> None:
    """An id that is not known gets 105."""
    await add(kafka, await begin(kafka), {"t": (0,)})
    rows = await describe(kafka, ID, "unknown", "", ID)
    assert [(row.transactional_id, row.error_code, row.transaction_state) for row in rows] == [
        (ID, NONE, "Ongoing"),
        ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ""),
        ("", ErrorCode.INVALID_REQUEST, ""),
    ]


def test_an_id_without_a_first_transaction_has_no_start() -> None:
    """It is -1, as in Kafka."""
    row = {
        "error_code": NONE,
        "transactional_id": "t",
        "transaction_state": "Empty",
        "transaction_timeout": 1,
        "transaction_start_time": -1,
        "producer_id": 7,
        "producer_epoch": 2,
        "topics": (),
    }
    body = describe_transactions.API.encode_response(
        0, {"throttle_time": 0, "transaction_states": (row,)}
    )
    assert body.endswith(b"\x06Empty\0\0\0\x01" + b"\xff" * 8 + b"\0\0\0\0\0\0\0\x07\0\x02\x01\0\0")


async def listed(kafka: RawConnection, version: int = 2, **filters: Any) -> dict[str, str]:
    """The state of each id that ListTransactions shows."""
    fields: dict[str, Any] = {"state_filters": (), "producer_id_filters": (), **filters}
    if version >= 1:
        fields.setdefault("duration_filter", -1)
    if version >= 2:
        fields.setdefault("transactional_id_pattern", None)
    answer = await kafka.call("list_transactions", version, **fields)
    assert answer.error_code == NONE
    return {row.transactional_id: row.transaction_state for row in answer.transaction_states}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_ids_are_listed_with_filters(kafka: RawConnection, topic: None, version: int) -> None:
    """Each filter has to let an id through."""
    first, _ = await begin(kafka, "a")
    second = await begin(kafka, "b")
    await add(kafka, second, {"t": (0,)}, name="b")
    assert await listed(kafka, version) == {"a": "Empty", "b": "Ongoing"}
    assert await listed(kafka, version, state_filters=("Ongoing", "x")) == {"b": "Ongoing"}
    assert await listed(kafka, version, producer_id_filters=(first,)) == {"a": "Empty"}
    assert await listed(kafka, version, state_filters=("x",)) == {}
    if version >= 1:
        assert await listed(kafka, version, duration_filter=3_600_000) == {"a": "Empty"}
    if version >= 2:
        assert await listed(kafka, version, transactional_id_pattern="[bc]") == {"b": "Ongoing"}


async def test_filters_that_are_not_known_are_named(kafka: RawConnection) -> None:
    """A pattern that is none is an error."""
    await begin(kafka)
    answer = await kafka.call(
        "list_transactions", 0, state_filters=("x", "Dead", "x"), producer_id_filters=()
    )
    assert answer.unknown_state_filters == ("x",)
    answer = await kafka.call(
        "list_transactions",
        2,
        state_filters=(),
        producer_id_filters=(),
        duration_filter=-1,
        transactional_id_pattern="(",
    )
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_leader_adds_partitions_and_looks(
    kafka: RawConnection, native: NativeConnection, running: Running, topic: None
) -> None:
    """By a native message, of many transactions; it gets the number of each."""
    identity = await begin(kafka)
    topic_id = running.broker.registry.topics["t"].topic_id.bytes
    places = tuple(TransactionPartition("t", index, topic_id) for index in (0, 1))
    ask = TransactionAsk(ID, *identity, True, 2, places[:1])
    look = ask._replace(is_add=False, partitions=places)
    unknown = look._replace(transactional_id="unknown")
    found = []
    for asks in ([ask], [look, unknown]):
        message = AddOrVerify(2, asks).to_message()
        answer = await native.call(message.pop("type"), **message)
        found += read_add_or_verify_answer(answer, asks)
    assert found == [
        TransactionAnswered(NONE, 1, (NONE,)),
        TransactionAnswered(NONE, 1, (NONE, ErrorCode.TRANSACTION_ABORTABLE)),
        TransactionAnswered(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ]
