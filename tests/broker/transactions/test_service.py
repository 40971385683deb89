"""Transactional ids over partitions in memory: what a broker does that coordinates them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.metadata.producer_id_block import ProducerIdBlockError
from echoless.broker.metadata.topic import TopicDeleted
from echoless.broker.network.request import CloseConnectionError
from echoless.broker.state_topics.shard_state import ShardState
from echoless.broker.transactions import marker_sender
from echoless.broker.transactions import shard as shard_module
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.coordinator import SPARE_IDS
from echoless.coordinators.transactions.requests import (
    EndTransaction,
    InitTransactionalId,
    VerifyPartitions,
)
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.transactions import TransactionAsk
from echoless.protocol.state_records.transaction_records import TransactionStatus
from tests.broker.transactions.coordinating import ID, PARTITIONS, Coordinating
from tests.broker.transactions.fake_door import place
from tests.broker.until import until

COMMITTED = TransactionStatus.COMPLETE_COMMIT
ABORTED = TransactionStatus.COMPLETE_ABORT


@pytest.fixture
async def one(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Coordinating]:
    """A service that serves."""
    monkeypatch.setattr(marker_sender, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(marker_sender, "_LONGEST_WAIT_S", 0.01)
    monkeypatch.setattr(shard_module, "_ASK_AGAIN_S", 0.001)
    coordinating = Coordinating()
    await coordinating.serve()
    yield coordinating
    await coordinating.service.close()


@pytest.mark.parametrize(("is_commit", "status"), [(True, COMMITTED), (False, ABORTED)])
async def test_a_transaction_ends_with_a_marker_in_each_partition(
    one: Coordinating, *, is_commit: bool, status: TransactionStatus
) -> None:
    """The client has its answer once the end is decided; Complete follows the last marker."""
    one.door.may_answer.clear()
    identity = await one.begin(0, 1)
    assert one.status() is TransactionStatus.ONGOING
    assert await one.end(identity, is_commit=is_commit) is ErrorCode.NONE
    assert one.status() in {TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT}
    await until(lambda: len(one.door.written) == 2)
    assert one.service.missing_markers == 2
    one.door.may_answer.set()
    await until(lambda: one.status() is status)
    ((_, (marker,)),) = one.door.requests
    assert set(marker.partitions) == {place(0), place(1)}
    assert (marker.producer_id, marker.producer_epoch) == identity
    assert (marker.is_commit, marker.number, marker.coordinator_epoch) == (is_commit, 1, 2)
    assert marker.state_partition == one.home.partition.index


async def test_an_id_of_another_broker_is_refused(one: Coordinating) -> None:
    """And so is none at all."""
    one.service.lost(one.home.partition)
    init = InitTransactionalId(1000)
    assert await one.ask(init) == TransactionAnswer(ErrorCode.NOT_COORDINATOR)
    assert one.service.look_at(ID) is ErrorCode.NOT_COORDINATOR
    assert await one.ask(init, "") == TransactionAnswer(ErrorCode.INVALID_REQUEST)
    assert one.service.look_at("") is ErrorCode.INVALID_REQUEST


async def test_a_leader_of_this_broker_may_look_at_once(one: Coordinating) -> None:
    """With the answer of `answer`; not while the coordinator loads, nor once another broker may lead."""
    identity = await one.begin(0)
    for index in (0, 1):
        ask = TransactionAsk(
            ID, *identity, is_add=False, client_version=0, partitions=(place(index),)
        )
        found = one.service.look_for_leader(ask)
        assert found == await one.service.answer(ask)
        assert found is not None
        assert found.partition_codes == (
            ErrorCode.TRANSACTION_ABORTABLE if index else ErrorCode.NONE,
        )
    one.home.fencing.is_proved = False
    assert one.service.look_for_leader(ask) is None
    one.home.fencing.is_proved = True
    one.service.lost(one.home.partition)
    assert one.service.look_for_leader(ask) is None
    one.service.led(one.home.partition, 2)
    assert one.service.look_for_leader(ask) is None


async def test_loads_are_counted(one: Coordinating) -> None:
    """Both partitions count; one that cannot be read is not served, and says why."""
    metrics = one.metrics
    assert (metrics.transactional_id_loads_total, metrics.group_loads_total) == (2, 0)
    assert one.service.unserved() == []
    await one.begin(0)
    one.service.lost(one.home.partition)
    one.home.lead(3)
    one.home.one.log.read = lambda *_: b"\0" * 70  # type: ignore[method-assign]
    one.service.led(one.home.partition, 3)
    await until(one.service.unserved)
    assert metrics.transactional_id_load_failures_total == 1
    (unserved,) = one.service.unserved()
    assert (unserved.partition, unserved.state) == (one.home.partition.index, "failed")


async def test_a_successor_sends_the_markers_that_are_missing(one: Coordinating) -> None:
    """In its own leader epoch; what the one before still tries is of no consequence."""
    one.door.code_of = lambda *_: ErrorCode.NOT_LEADER_OR_FOLLOWER
    identity = await one.begin(0)
    assert await one.end(identity) is ErrorCode.NONE
    await until(lambda: one.door.requests)
    one.service.lost(one.home.partition)
    one.home.lead(3)
    one.door.code_of = lambda *_: ErrorCode.NONE
    await one.serve()
    await until(lambda: one.status() is COMMITTED)
    assert one.door.requests[-1][1][0].coordinator_epoch == 3
    await until(lambda: one.service.missing_markers == 0)


async def test_an_answer_that_comes_while_loading_ends_counts(
    one: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The markers of the first of many ids are in before the last one is loaded."""
    one.door.error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    assert await one.end(await one.begin(0)) is ErrorCode.NONE
    one.service.lost(one.home.partition)
    one.home.lead(3)
    one.door.error = None
    shards = one.service.shards
    index = one.home.partition.index
    sent = len(one.door.requests)

    async def slowly(steps: Any) -> None:
        for _ in steps:
            await asyncio.sleep(0)
        await until(lambda: len(one.door.requests) > sent)
        await until(lambda: one.service.missing_markers == 0)

    monkeypatch.setattr("echoless.broker.state_topics.shard.work_in_turns", slowly)
    one.service.led(one.home.partition, 3)
    assert shards[index].state is ShardState.LOADING
    await until(lambda: one.status() is COMMITTED)


async def test_a_request_on_a_connection_from_before_the_election_closes_it(
    one: Coordinating,
) -> None:
    """It may be a copy of what another coordinator has answered; newer connections are served."""
    identity = await one.begin(0)
    one.service.lost(one.home.partition)
    one.newest_connection = 10
    one.home.lead(3)
    await one.serve()
    with pytest.raises(CloseConnectionError, match="older connection"):
        await one.ask(EndTransaction(*identity, is_commit=True, connection=10))
    assert one.status() is TransactionStatus.ONGOING
    answer = await one.ask(EndTransaction(*identity, is_commit=True, connection=11))
    assert answer.error_code is ErrorCode.NONE


async def test_nothing_is_answered_before_it_is_committed() -> None:
    """An answer without the replicas could be taken back by the next leader."""
    one = Coordinating(replicas=(1, 2))
    await one.serve()
    log, partition = one.home.one.log, one.home.partition
    await until(lambda: one.last_producer_id >= 99 + SPARE_IDS * PARTITIONS)
    asked = asyncio.ensure_future(one.ask(InitTransactionalId(1000)))
    await until(lambda: log.log_end_offset == 1)
    await asyncio.sleep(0.005)
    assert not asked.done()
    partition.note_fetch(2, 7, 1)
    assert (await asked).error_code is ErrorCode.NONE
    await one.service.close()


async def test_producer_ids_are_asked_for_until_there_are_some(
    one: Coordinating, caplog: pytest.LogCaptureFixture
) -> None:
    """Meanwhile a new id is refused with a code that clients retry."""
    await until(lambda: one.last_producer_id >= 99 + 16 * PARTITIONS)
    one.service.lost(one.home.partition)
    one.id_errors = [
        KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the tree is away"),
        ProducerIdBlockError("used up"),
    ]
    one.home.lead(3)
    await one.serve()
    refused = await one.ask(InitTransactionalId(1000))
    assert refused.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await one.begin(0)
    assert "gets no producer ids: COORDINATOR_LOAD_IN_PROGRESS: the tree is away" in caplog.text


async def test_producer_ids_from_before_a_deletion_are_not_given(one: Coordinating) -> None:
    """A topic that is created again takes lower ids for those of its predecessor's producers."""
    await until(lambda: one.last_producer_id >= 99 + 16 * PARTITIONS)
    before = one.last_producer_id
    topic: Any = SimpleNamespace(name="t")
    one.service.on_topic_event(TopicDeleted(topic))
    producer_id, _ = await one.begin(0)
    assert producer_id > before


async def test_a_leader_may_look_at_a_transaction(one: Coordinating) -> None:
    """A partition that was not added is named."""
    identity = await one.begin(0)
    asked = VerifyPartitions(*identity, frozenset({place(0), place(1)}))
    assert await one.ask(asked) == TransactionAnswer(abortable=frozenset({place(1)}), number=1)


async def test_every_id_is_listed_with_its_state(one: Coordinating) -> None:
    """All partitions that are loaded add theirs."""
    names = [f"id-{number}" for number in range(5)]
    for name in names:
        await one.begin(0, name=name)
    listed = dict(one.service.all())
    assert sorted(listed) == names
    assert {value.status for value in listed.values()} == {TransactionStatus.ONGOING}
    one.service.lost(one.led[0].partition)
    assert 0 < len(dict(one.service.all())) < len(names)


async def test_an_id_that_is_not_known_is_not_found(one: Coordinating) -> None:
    """Without making it."""
    assert one.service.look_at(ID) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert dict(one.service.all()) == {}
