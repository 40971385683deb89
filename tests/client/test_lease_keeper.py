"""Leases are there in time: the keeper over days of virtual time, and a real broker's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from echoless.client.lease import Lease, lease
from echoless.client.lease_keeper import LeaseKeeper
from echoless.client.lease_request import Leased, NoLeasesError, read_leases, request_leases
from echoless.client.sequenced_batch import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.leases import is_leased
from tests.simulation.virtual_loop import VirtualLoop
from tests.support.in_process import in_process
from tests.support.native_client import NativeConnection

DAY_S = 86_400.0
DAY_MS = 86_400_000
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


class Days:
    """A keeper on a loop whose days pass at once, and a broker that may be down."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.is_down = self.is_refused = False
        self.refusal: KafkaError | None = None
        self.requests: list[tuple[float, int]] = []
        """When was asked, for how many partitions."""
        self.slept_s = 0.0
        self.issued = 0
        self.keeper = LeaseKeeper(self.request, PARTITIONS, now=lambda: loop.time() + self.slept_s)
        self.began = loop.time()
        self.task = loop.create_task(self.keeper.run())

    async def request(self, partitions: Sequence[TopicPartition], now: float) -> Leased:
        self.requests.append((now, len(partitions)))
        if self.is_down:
            raise NoLeasesError("nobody answers", is_refused=self.is_refused)
        leased: dict[TopicPartition, Any] = {}
        for partition in partitions:
            self.issued += 1
            leased[partition] = self.refusal or lease(
                Identity(self.issued, 0), asked_at=now, lease_ms=DAY_MS, retention_ms=DAY_MS + 1000
            )
        return leased

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)
        assert not self.task.done()

    def wait_for_lease(self) -> asyncio.Task[Lease | KafkaError]:
        """Ten seconds later: what has come of waiting, or still comes."""

        async def outcome() -> Lease | KafkaError:
            try:
                return await self.keeper.wait_for_lease(PARTITIONS[0])
            except KafkaError as error:
                return error

        task = self.loop.create_task(outcome())
        self.loop.run_until(self.loop.time() + 10, task.done)
        return task

    def current(self, partition: TopicPartition = PARTITIONS[0]) -> int | None:
        found = self.keeper.may_send(partition, has_outstanding=False)
        return None if found is None else found.identity.producer_id


@pytest.fixture
def days() -> Iterator[Days]:
    errors: list[BaseException] = []
    with VirtualLoop(Random(0), lambda _, error: errors.append(error)) as loop:
        days = Days(loop)
        yield days
        days.task.cancel()
        loop.run_until(loop.time() + 1)
    assert not errors


def test_all_partitions_are_leased_in_one_message_a_day(days: Days) -> None:
    """Each day's one comes an hour before the end, and there is always one that lives."""
    days.run(1.0)
    assert days.requests == [(days.began, 2)]
    for _ in range(24 * 5):
        days.run(3600.0)
        assert days.current() is not None
    assert 6 <= len(days.requests) <= 7
    assert {count for _, count in days.requests} == {2}


def test_a_broker_that_is_down_for_a_while_is_not_noticed(days: Days) -> None:
    """The current lease is used; the next one comes as soon as there is an answer."""
    days.run(1.0)
    days.is_down = True
    days.run(DAY_S - 3000.0)
    assert days.current() == 1
    days.is_down = False
    days.run(2.0)
    assert days.current() == 3


def test_behind_the_end_nothing_new_is_sent(days: Days) -> None:
    """Waiting batches continue when a broker answers again."""
    days.run(1.0)
    days.is_down = True
    days.run(DAY_S)
    assert days.current() is None
    task = days.wait_for_lease()
    assert not task.done()
    days.is_down = False
    days.run(2.0)
    assert task.result() == days.keeper.may_send(PARTITIONS[0], has_outstanding=False)


def test_a_machine_that_slept_does_not_use_what_has_ended(days: Days) -> None:
    """The loop's clock stood still, that of the leases did not."""
    days.run(1.0)
    old = days.keeper.may_send(PARTITIONS[0], has_outstanding=True)
    assert old is not None
    days.slept_s = DAY_S
    assert days.current() is None
    assert not days.keeper.may_resend(old)
    days.run(60.0)
    assert days.current() == 3


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_TOPIC_EXCEPTION]
)
def test_a_refusal_for_good_is_told(code: ErrorCode, days: Days) -> None:
    """A batch waiting for a lease that never comes gets the reason."""
    days.refusal = KafkaError(code, "no")
    task = days.wait_for_lease()
    assert task.result() is days.refusal


def test_who_waits_hears_of_a_log_in_that_is_refused(days: Days) -> None:
    """A password that was changed while batches wait."""
    days.is_down = True
    task = days.wait_for_lease()
    assert not task.done()
    days.is_refused = True
    days.run(10.0)
    refused = task.result()
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_refusal_for_now_is_waited_for(days: Days) -> None:
    """Such as while no block of ids can be claimed."""
    days.refusal = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "soon")
    task = days.wait_for_lease()
    assert not task.done()
    days.refusal = None
    days.run(2.0)
    assert task.result() == days.keeper.may_send(PARTITIONS[0], has_outstanding=False)


async def test_a_real_broker_leases(tmp_path: Path) -> None:
    """It works even if the first address is unused; a missing topic has its own reason."""
    async with in_process(tmp_path) as running:
        native = await NativeConnection.open(running.native_address)
        await native.call("create_topic", topic="orders", partitions=2)
        await native.close()
        host, _, port = running.native_address.rpartition(":")
        wanted = [*PARTITIONS, TopicPartition("nowhere", 0)]
        addresses = [(host, 1), (host, int(port))]
        leased = await request_leases(addresses, wanted, asked_at=50.0)
        refused = leased.pop(wanted[2])  # type: ignore[attr-defined]
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for granted in leased.values():
            assert not isinstance(granted, KafkaError)
            assert is_leased(granted.identity.producer_id)
            assert granted.ends_at == 50.0 + DAY_S
    with pytest.raises(NoLeasesError, match=r":1 .*; .*:\d+ "):
        await request_leases(addresses, wanted, asked_at=50.0)


ROW = {"topic": "orders", "partition": 0, "error": {"code": 0}, "pid": 2**52, "generation": 0}
ANSWER = {"error": {"code": 0}, "lease_ms": 1000, "retention_ms": 2000, "partitions": [ROW]}


@pytest.mark.parametrize(
    "change",
    [
        {"partitions": []},
        {"partitions": [{**ROW, "partition": 1}]},
        {"partitions": [{**ROW, "pid": -1}]},
        {"partitions": [{**ROW, "pid": None}]},
        {"partitions": [7]},
        {"lease_ms": 0},
        {"retention_ms": 999},
        {"error": None},
    ],
)
def test_an_answer_that_makes_no_sense_grants_nothing(change: dict[str, Any]) -> None:
    """An id that was never leased could be another producer's."""
    assert read_leases(ANSWER, PARTITIONS[:1], 0.0)
    with pytest.raises(DecodeError):
        read_leases({**ANSWER, **change}, PARTITIONS[:1], 0.0)


def test_an_answer_that_is_an_error_is_raised() -> None:
    """A broker that does not know the message has no leases: it may be an older one."""
    answer = {"error": {"code": 35, "message": "not known"}}
    with pytest.raises(KafkaError, match="not known"):
        read_leases(answer, PARTITIONS, 0.0)
