"""Rules about transactions: which requests they match, and markers and questions that a broker would ask of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.reading_rules import read_rules
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.transactions import TransactionMarker, WriteMarkers
from echoless.protocol.state_records.transaction_records import TransactionPartition
from tests.broker.faults.lab import TOPIC, Lab
from tests.broker.handlers.one_transaction import ID, Identity, add, begin, end, find, init, state
from tests.broker.until import until
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import TRANSACTIONAL, plain_batch
from tests.support.raw_client import RawConnection
from tests.support.raw_produce import PartitionData

OK = ErrorCode.NONE
OTHER = "payments"


def stable(lab: Lab, partition: int) -> int:
    return lab.broker.partitions[TOPIC, partition].last_stable_offset


async def send(
    kafka: RawConnection, identity: Identity, partition: int, *, version: int = 12, name: str = ID
) -> ErrorCode:
    """The code of a transactional batch of one record."""
    producer_id, epoch = identity
    batch = plain_batch([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    data = replace(batch, attributes=TRANSACTIONAL).encode()
    (answer,) = await kafka.produce(version, -1, [PartitionData(TOPIC, partition, data)], name)
    return ErrorCode(answer.error)


async def opened(kafka: RawConnection, *partitions: int, name: str = ID) -> Identity:
    """A transaction with a record on each of these partitions."""
    identity = await begin(kafka, name)
    for partition in partitions:
        assert await send(kafka, identity, partition, name=name) is OK
    return identity


# --- what matches ---


async def test_each_api_of_an_id_is_matched_by_it(lab: Lab, kafka: RawConnection) -> None:
    """From the first look for the coordinator to the end; another id is left alone."""
    rule = lab.add({"type": "delay_response", "ms": 0}, {"transactional_id": ID})
    identity = await begin(kafka)
    await add(kafka, identity, {TOPIC: (0,)})
    assert await send(kafka, identity, 0, version=11) is OK
    await end(kafka, identity)
    await kafka.call("describe_transactions", 0, transactional_ids=(ID,))
    mine = lab.counts(rule)[1]
    apis = {hit.api for hit in lab.hits()}
    assert apis >= {
        *("find_coordinator", "init_producer_id", "add_partitions_to_txn", "produce", "end_txn"),
        "describe_transactions",
    }
    assert {hit.about for hit in lab.hits() if hit.api == "end_txn"} == {f"{ID} commit"}
    assert {hit.about for hit in lab.hits() if hit.api == "add_partitions_to_txn"} == {
        f"{ID} {TOPIC}-0"
    }
    await begin(kafka, OTHER)
    await find(kafka, version=1, name=OTHER)
    assert lab.counts(rule)[1] == mine


@pytest.mark.parametrize(("result", "hit"), [("commit", [51, 0]), ("abort", [0, 51])])
async def test_a_commit_is_told_from_an_abort(
    lab: Lab, kafka: RawConnection, result: str, hit: list[int]
) -> None:
    """By `result`; the transaction ends nevertheless, as the rule acts once."""
    action = {"type": "error", "code": "CONCURRENT_TRANSACTIONS"}
    lab.add(action, {"api": "end_txn", "result": result}, times=1)
    codes = []
    for is_commit in (True, False):
        identity = await opened(kafka, 0)
        codes.append((await end(kafka, identity, is_commit=is_commit)).error_code)
        if codes[-1]:
            await end(kafka, identity, is_commit=is_commit)
    assert codes == hit


async def test_a_producer_is_matched_in_the_apis_of_transactions(
    lab: Lab, kafka: RawConnection
) -> None:
    """If the rule names the API; without one a producer's fields still imply Produce."""
    identity = await begin(kafka)
    unnamed = lab.add("twice", {"producer_id": identity[0]})
    named = lab.add("twice", {"api": "end_txn", "producer_id": identity[0], "producer_epoch": 0})
    await add(kafka, identity, {TOPIC: (1,)})
    answer = await end(kafka, identity)
    assert (answer.error_code, lab.counts(unnamed)[0], lab.counts(named)[1]) == (OK, 0, 1)


async def test_added_partitions_are_matched(lab: Lab, kafka: RawConnection) -> None:
    """In versions of clients and of brokers."""
    action = {"type": "error", "code": "COORDINATOR_LOAD_IN_PROGRESS"}
    rule = lab.add(action, {"api": "AddPartitionsToTxn", "topic": TOPIC, "partition": 1})
    identity = await begin(kafka)
    assert await add(kafka, identity, {TOPIC: (0,)}) == {(TOPIC, 0): OK}
    refused = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await add(kafka, identity, {TOPIC: (1,)}) == {(TOPIC, 1): refused}
    assert lab.counts(rule) == (1, 1)


async def test_a_right_is_denied_to_one_id(lab: Lab, kafka: RawConnection) -> None:
    """53 for it, and for no other."""
    lab.add({"type": "deny", "right": "write"}, {"transactional_id": ID})
    answer = await init(kafka)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await begin(kafka, OTHER))[1] == 0


@pytest.mark.parametrize(
    ("match", "words"),
    [
        ({"api": "fetch", "transactional_id": ID}, "match.transactional_id takes match.api"),
        ({"api": "produce", "result": "commit"}, "match.result takes match.api: end_txn"),
        ({"api": "end_txn", "result": "maybe"}, "match.result takes commit or abort, not 'maybe'"),
        ({"api": "end_txn", "base_sequence": 3}, "match.base_sequence: only produce"),
        ({"api": "fetch", "producer_id": 3}, "match.producer_id: only produce"),
        ({"api": "end_txn", "topic": TOPIC}, "match.topic: end_txn requests name no topics"),
    ],
)
def test_a_rule_that_can_never_match_is_refused(match: dict[str, Any], words: str) -> None:
    """With the APIs that have the field."""
    with pytest.raises(RuleError, match=words):
        read_rules({"match": match, "action": "drop_response"})


# --- markers and questions on one broker ---


async def test_a_marker_of_one_partition_is_held(lab: Lab, kafka: RawConnection) -> None:
    """The other partition has its own at once; the held one comes when the rule ends, and then the transaction ends."""
    identity = await opened(kafka, 0, 1)
    match = {"api": "write_markers", "topic": TOPIC, "partition": 1, "transactional_id": ID}
    rule = lab.add({"type": "delay_request", "ms": 3_600_000}, {**match, "result": "commit"})
    assert (await end(kafka, identity, version=5)).error_code == OK
    await until(lambda: stable(lab, 0) == 2)
    assert stable(lab, 1) == 0
    assert await state(kafka) == "PrepareCommit"
    assert [hit.about for hit in lab.hits()] == [f"{ID} commit {TOPIC}-1"]
    assert lab.counts(rule) == (1, 1)


async def test_a_frozen_marker_does_not_hold_up_another_transaction(
    lab: Lab, kafka: RawConnection
) -> None:
    """Nor its partition; it is written when the rule is removed."""
    mine, other = await opened(kafka, 0, 1), await opened(kafka, 1, name=OTHER)
    lab.add("freeze", {"topic": TOPIC, "partition": 0})
    frozen = lab.broker.faults.documents()[0]["name"]
    assert (await end(kafka, mine, version=5)).error_code == OK
    assert (await end(kafka, other, version=5, name=OTHER)).error_code == OK
    await until(lambda: stable(lab, 1) == 4)
    assert stable(lab, 0) == 0
    lab.broker.faults.remove(frozen)
    await until(lambda: stable(lab, 0) == 2)
    while await state(kafka) != "CompleteCommit":
        pass


@pytest.mark.parametrize("action", ["error", "error_after"])
async def test_a_refused_marker_is_sent_again(lab: Lab, kafka: RawConnection, action: str) -> None:
    """After it was written, too: a copy is recognised."""
    identity = await opened(kafka, 0, 1)
    match = {"api": "write_markers", "partition": 0, "topic": TOPIC}
    rule = lab.add({"type": action, "code": "NOT_LEADER_OR_FOLLOWER"}, match, times=1)
    assert (await end(kafka, identity)).error_code == OK
    while await state(kafka) != "CompleteCommit":
        pass
    assert (stable(lab, 0), stable(lab, 1)) == (2, 2)
    assert lab.counts(rule)[1] == 1
    assert [await lab.stored(partition) for partition in (0, 1)] == [2, 2]


@pytest.mark.parametrize("action", ["close_before", "close_after", "close_within", "twice"])
async def test_a_marker_outlives_a_connection(lab: Lab, kafka: RawConnection, action: str) -> None:
    """A message of a broker to itself has none, and is lost in the same way."""
    identity = await opened(kafka, 0)
    lab.add(action, {"api": "write_markers"}, times=1)
    assert (await end(kafka, identity, is_commit=False)).error_code == OK
    while await state(kafka) != "CompleteAbort":
        pass
    assert await lab.stored(0) == 2


async def test_the_nth_marker_is_picked(lab: Lab, kafka: RawConnection) -> None:
    """By `skip`."""
    rule = lab.add({"type": "delay_response", "ms": 1}, {"api": "write_markers"}, skip=1, times=1)
    for hits in (0, 1, 1):
        identity = await opened(kafka, 0)
        await end(kafka, identity)
        while await state(kafka) != "CompleteCommit":
            pass
        assert lab.counts(rule)[1] == hits


async def test_the_question_of_a_leader_is_refused(lab: Lab, kafka: RawConnection) -> None:
    """The batch that waits for it is answered as if the coordinator had said so."""
    identity = await begin(kafka)
    match = {"api": "add_or_verify", "transactional_id": ID, "partition": 1, "topic": TOPIC}
    lab.add({"type": "error", "code": "TRANSACTION_ABORTABLE"}, match, times=1)
    assert await send(kafka, identity, 0) is OK
    assert await send(kafka, identity, 1) is ErrorCode.TRANSACTION_ABORTABLE
    assert await send(kafka, identity, 1) is OK


async def test_a_lost_question_is_not_answered_in_time(lab: Lab, kafka: RawConnection) -> None:
    """As if the connection of two brokers had ended: the client tries again."""
    identity = await begin(kafka)
    lab.add("close_before", {"api": "add_or_verify"}, times=1)
    assert await send(kafka, identity, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert await send(kafka, identity, 0) is OK


# --- messages of other brokers ---


async def test_a_message_with_many_markers_is_divided(
    lab: Lab, kafka: RawConnection, native: NativeConnection
) -> None:
    """Its answer has the codes in the order of the message, and the rest is written while a part waits."""
    first, second = await opened(kafka, 0, 1), await opened(kafka, 0, 1, name=OTHER)
    topic_id = lab.broker.registry.topics[TOPIC].topic_id.bytes
    places = tuple(TransactionPartition(TOPIC, index, topic_id) for index in (0, 1))
    markers = [
        TransactionMarker(*identity, number, True, 0, 9, 2, places, name)
        for identity, number, name in ((first, 1, ID), (second, 1, OTHER))
    ]
    code = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    lab.add({"type": "error", "code": code}, {"api": "write_markers", "transactional_id": OTHER})
    native.send(**WriteMarkers(2, markers).to_message())
    answer = await native.receive()
    assert answer["transactions"] == [{"codes": [0, 0]}, {"codes": [code, code]}]
    lab.broker.faults.clear()
    lab.add("freeze", {"topic": TOPIC, "partition": 1})
    for place in places[::-1]:
        native.send(**WriteMarkers(2, [markers[1]._replace(partitions=(place,))]).to_message())
    await until(lambda: stable(lab, 0) == 4)
    assert stable(lab, 1) == 1
    lab.broker.faults.clear()
    for _ in places:
        assert (await native.receive())["transactions"] == [{"codes": [0]}]
    assert stable(lab, 1) == 4
